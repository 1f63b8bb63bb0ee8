"""A small loop with one fault at a time: found, named, with expected and got; and the draws that matter to nobody."""

import itertools
import random
from collections.abc import Iterator
from contextlib import nullcontext as nothing
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import parity
from tests.live.clean_torch import mlp, toy


def train(folder: Path, steps: int = 24, fault: str = "") -> Iterator[int]:
    faults = fault.split("+")
    torch.manual_seed(0)
    x, y = toy(64)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    start, best = 0, 9e9
    path = folder / "state.pt"
    if path.exists():
        state = torch.load(path, weights_only=False)
        model.load_state_dict(state["model"])
        if "optimizer" not in faults:
            optimizer.load_state_dict(state["optimizer"])
        if "scheduler" not in faults:
            scheduler.load_state_dict(state["scheduler"])
        if "constructor" in faults:
            optimizer.param_groups[0]["lr"] = 1e-2
        start = state["step"] + ("off by one" in faults)
        best = best if "best" in faults else state["best"]
        if "rng" not in faults:
            torch.set_rng_state(state["rng"])
    model.train()
    for step in range(start, steps):
        yield step
        first = step - start if "data" in faults else step
        at = torch.arange(first * 8, first * 8 + 8) % 64
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 7 == 0:
            with nothing() if "undeclared" in faults else parity.evaluation():
                model.eval()
                with torch.no_grad():
                    value = float(nn.functional.cross_entropy(model(x), y))
                if "mode" not in faults:
                    model.train()
                if "draw" in faults:
                    torch.randn(3)
            best = min(best, value)
        if (step + 1) % 5 == 0:
            with nothing() if "undeclared" in faults else parity.saving():
                if "rounding save" in faults:
                    model.half().float()
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best, "step": step + 1}
            torch.save({**parts, "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}, path)


FAULTS = {
    "optimizer": ("optimizer.step", "optimizer.state[model.0.bias].step", "30.0 -> absent"),
    "scheduler": ("schedule.step", "scheduler.last_epoch", "15 -> 0"),
    "constructor": ("schedule.lr", "optimizer.param_groups[0].lr", ""),
    "off by one": ("counters.step", "mark", "15 -> 16"),
    "best": ("best", "best", ""),
    "rng": ("rng.torch", "torch.default_generator", ""),
    "data": ("data.position", "at", ""),
    "mode": ("model.mode", "model.0.training", "True -> False"),
    "draw": ("rng.torch", "torch.default_generator", ""),
    "rounding save": ("model.params", "model.0.bias", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(fault: str) -> None:
    component, path, _ = FAULTS[fault]
    found = parity.resumes(train, steps=24, stop_at=17, mode="inline", options={"fault": fault})
    assert found.verdict == "broken", found.text()
    assert (found.components[0], found.suspects[0].path.removeprefix("state.pt: ")) == (component, path), found.text()
    assert len(found.text().splitlines()) <= 25


PAIRS = random.Random(0).sample(list(itertools.combinations(FAULTS, 2)), 14)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_faults_at_once_one_is_named_first(first: str, second: str) -> None:
    found = parity.resumes(train, steps=24, stop_at=17, mode="inline", options={"fault": f"{first}+{second}"})
    assert found.verdict == "broken", found.text()
    assert found.components[0] in {FAULTS[first][0], FAULTS[second][0]}, found.text()


@pytest.mark.parametrize("fault", ["draw", "rounding save"])
def test_what_a_single_run_shows_is_an_observation_until_its_region_is_declared(fault: str) -> None:
    """The resume is exact: both runs draw, and both round. Only their author can say that a statement may not."""
    options = {"fault": f"{fault}+undeclared"}
    found = parity.resumes(train, steps=24, stop_at=17, mode="inline", options=options)
    assert found.verdict == "holds", found.text()
    assert found.scenarios == ("kill", "again", "third")
    seen = [one.path for one in found.observations if one.when.startswith("across the")]
    assert FAULTS[fault][1] in seen, found.observations


def test_a_region_without_a_fault_is_no_finding() -> None:
    found = parity.resumes(train, steps=24, stop_at=17, mode="inline")
    assert (found.verdict, found.observations) == ("holds", ()), found.text()


def test_expected_and_got_are_said_with_the_number_of_elements() -> None:
    first = parity.resumes(train, steps=24, stop_at=17, mode="inline", options={"fault": "data"}).suspects[0]
    assert (first.elements, first.differing) == (8, 8)
    scheduler = parity.resumes(train, steps=24, stop_at=17, mode="inline", options={"fault": "scheduler"}).suspects[0]
    assert (scheduler.expected, scheduler.got, scheduler.step) == ("15", "0", 15)


def test_the_assertion_raises_with_the_verdict_and_names_the_component() -> None:
    with pytest.raises(parity.ResumeBrokenError, match=r"resume is broken: train: .*\nlost: schedule\.step"):
        parity.assert_resumes(train, steps=24, stop_at=17, mode="inline", options={"fault": "scheduler"})


def drawing(folder: Path, steps: int = 20) -> Iterator[int]:
    """Train in order and without dropout; loaders of training and of evaluation draw seeds that nobody reads."""
    torch.manual_seed(0)
    x, y = toy()
    model, data = nn.Linear(4, 3), DataLoader(TensorDataset(x, y), batch_size=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch = 0
    if (folder / "state.pt").exists():
        state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        epoch = state["epoch"]
    step = epoch * 4
    while step < steps:
        for inputs, labels in data:
            yield step
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            step += 1
        epoch += 1
        if epoch != 2:
            with parity.evaluation(), torch.no_grad():
                print(sum(float(nn.functional.cross_entropy(model(a), b)) for a, b in DataLoader(data.dataset, 24)))
        torch.save({"model": model.state_dict(), "epoch": epoch}, folder / "state.pt")


def test_a_generator_that_nothing_depends_on_is_no_loss() -> None:
    found = parity.resumes(drawing, steps=20, stop_at=14, mode="inline")
    assert found.verdict == "holds", found.text()
    assert any("training does not come to differ by it" in note for note in found.notes)


def rolling(folder: Path, steps: int = 20) -> Iterator[int]:
    """Make its data by rollouts without gradients, every fourth step, and recompute activations: nothing is lost."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    start, states = 0, torch.zeros(6, 4)
    if (folder / "state.pt").exists():
        parts = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(parts["model"])
        optimizer.load_state_dict(parts["optimizer"])
        torch.set_rng_state(parts["rng"])
        start, states = parts["step"], parts["states"]
    for step in range(start, steps):
        yield step
        if step % 4 == 0:
            with torch.no_grad():
                states = model(torch.randn(6, 4)) + 0.1 * torch.randn(6, 4)
        loss = checkpoint(model, states.requires_grad_(), use_reentrant=False).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "states": states.detach()}
            torch.save({**parts, "rng": torch.get_rng_state(), "step": step + 1}, folder / "state.pt")


def test_a_rollout_is_no_evaluation_and_recomputing_activations_no_save() -> None:
    found = parity.resumes(rolling, steps=20, stop_at=14, mode="inline")
    assert found.verdict == "holds", found.text()
