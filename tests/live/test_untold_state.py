"""State that no framework knows: lists, dicts and closures that a loop trains by; each loss is found and named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import parity
from tests.live.clean_torch import toy


def train(folder: Path, fault: str = "") -> Iterator[int]:
    torch.manual_seed(0)
    x, y = toy(64)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    slow = [p.detach().clone() for p in model.parameters()]
    scaling, kept, start = {"loss_scale": 8.0, "good": 0}, {"rate": 1.0}, 0

    def rate() -> float:
        return kept["rate"]

    if (folder / "state.pt").exists():
        saved = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
        slow = [p.detach().clone() for p in model.parameters()] if fault == "slow weights" else saved["slow"]
        scaling = scaling if fault == "own scaler" else saved["scaling"]
        kept = kept if fault == "closure" else saved["kept"]
        if fault == "betas":
            optimizer.param_groups[0]["betas"] = (0.9, 0.99)
    for step in range(start, 24):
        yield step
        at = torch.arange(step * 8, step * 8 + 8) % 64
        loss = nn.functional.cross_entropy(model(x[at]), y[at]) * rate()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept["rate"] *= 0.99
        scaling["good"] += 1
        if scaling["good"] >= 20:
            scaling = {"loss_scale": 16.0, "good": 0}
        if (step + 1) % 4 == 0:
            with torch.no_grad():
                for behind, p in zip(slow, model.parameters(), strict=True):
                    behind.add_(p - behind, alpha=0.5)
                    p.copy_(behind)
        if (step + 1) % 5 == 0:
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "slow": slow, "step": step + 1}
            torch.save({**parts, "scaling": scaling, "kept": kept}, folder / "state.pt")


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        ("slow weights", "slow[0]"),
        ("own scaler", "scaling."),
        ("closure", "kept.rate"),
        ("betas", "optimizer.param_groups"),
    ],
)
def test_what_was_lost_is_named_by_its_path(fault: str, path: str) -> None:
    found = parity.resumes(train, steps=24, stop_at=17, mode="inline", options={"fault": fault})
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith(path), found.text()


def test_the_clean_loop_holds() -> None:
    found = parity.resumes(train, steps=24, stop_at=17, mode="inline")
    assert found.verdict == "holds", found.text()
