"""What hides from a comparison of ends: a loss that heals, and what leads a reader astray from the cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import parity
from tests.live.clean_torch import toy


def stopping(folder: Path, steps: int = 14, *, fault: str = "", evaluate: int = 4) -> Iterator[int]:
    """Keep the best weights and count evaluations without a better one; `fault`: best, patience, read, derived."""
    torch.manual_seed(0)
    x, y = toy(32)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    start, best, patience, derive = 0, 1e9, 0, False
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        start = state["step"]
        patience = 0 if fault == "patience" else state["patience"]
        derive = fault in ("derived", "read")
        best = best if fault in ("best", "derived", "read") else state["best"]
    for step in range(start, steps):
        yield step
        # "derived": at once; "read": in the step that evaluates
        if derive and (fault == "derived" or step % evaluate == evaluate - 1):
            best, derive = float((folder / "best.txt").read_text()), False
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % evaluate == evaluate - 1:
            value = nn.functional.cross_entropy(model(x), y).item() + (0.5 if step == 7 else 0.0)
            patience = 0 if value < best else patience + 1
            if value < best:
                best = value
                (folder / "best.txt").write_text(repr(best))
            if patience > 3:
                return
        if step % 5 == 4:
            parts = {"model": model.state_dict(), "step": step + 1, "best": best, "patience": patience}
            torch.save(parts, folder / "state.pt")


@pytest.mark.parametrize("fault", ["best", "patience"])
def test_a_best_metric_that_the_next_evaluation_replaces_was_lost_all_the_same(fault: str) -> None:
    found = parity.resumes(stopping, steps=14, stop_at=10, mode="inline", scenarios="kill", options={"fault": fault})
    assert (found.verdict, found.components[:1]) == ("broken", ("best",)), found.text()
    assert (found.suspects[0].path, found.suspects[0].when) == (fault, "at the resume"), found.text()


@pytest.mark.parametrize(("fault", "listed"), [("", False), ("derived", False), ("read", True)])
def test_one_that_the_loop_takes_from_its_folder_is_not(fault: str, listed: bool) -> None:
    found = parity.resumes(stopping, steps=14, stop_at=10, mode="inline", scenarios="kill", options={"fault": fault})
    assert found.verdict == "holds", found.text()
    assert [one.path for one in found.bookkeeping if one.path == "best"] == ["best"] * listed, found.text()


def test_a_resume_before_the_first_evaluation_lost_no_best_metric() -> None:
    options = {"evaluate": 8}
    found = parity.resumes(stopping, steps=14, stop_at=7, mode="inline", scenarios="kill", options=options)
    assert found.verdict == "holds", found.text()


def deep(folder: Path, steps: int = 12, *, fault: str = "") -> None:
    """Mark within an inner function; `fault`: rng, clip, penalty. What was loaded stays in a variable."""
    torch.manual_seed(0)
    x, y = toy(32)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start, clip, rule = 0, 0.5, {"l2": 1e-3}
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        start = state["step"]
        clip = 0.05 if fault == "clip" else clip
        rule["l2"] = 1e-2 if fault == "penalty" else 1e-3
        if fault != "rng":
            torch.set_rng_state(state["rng"])

    def one(step: int) -> None:
        parity.mark(step)
        loss = nn.functional.cross_entropy(model(x), y)
        loss = loss + rule["l2"] * sum(p.square().sum() for p in model.parameters())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    for step in range(start, steps):
        one(step)
        if step % 5 == 4:
            parts = {"model": model.state_dict(), "step": step + 1, "rng": torch.get_rng_state()}
            torch.save(parts, folder / "state.pt")


LEADS = {
    "": (),
    "rng": ("rng.torch", "torch.default_generator"),
    "clip": ("settings", "clip"),
    "penalty": ("settings", "rule.l2"),
}
"""Fault, to the component and path that lead; no fault, no suspect."""


@pytest.mark.parametrize("fault", LEADS)
def test_what_was_lost_or_changed_leads_and_what_was_left_over_does_not(fault: str) -> None:
    found = parity.resumes(deep, steps=12, stop_at=7, mode="inline", scenarios="kill", options={"fault": fault})
    assert found.verdict == ("broken" if fault else "holds"), found.text()
    assert [(one.component, one.path) for one in found.suspects[:1]] == [LEADS[fault]] * bool(fault), found.text()
    assert not any(".state" in one.path or one.path.startswith("state") for one in found.suspects), found.text()
