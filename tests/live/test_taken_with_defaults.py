"""What is made at its first use is not there after a resume that lost it: its default is another value."""

import math
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.live.small_loops import check, first

LOCAL = threading.local()


def mean(value: float) -> float:
    mean.kept = 0.9 * getattr(mean, "kept", 1.0) + 0.1 * value  # type: ignore[attr-defined]
    return mean.kept  # type: ignore[attr-defined, no-any-return]


def tempered() -> float:
    try:
        LOCAL.warmth *= 0.97
    except AttributeError:
        LOCAL.warmth = 2.0
    return float(LOCAL.warmth)


def stepping(folder: Path, steps: int, lost: str) -> Iterator[int]:
    vars(mean).clear()
    LOCAL.__dict__.clear()
    w, begin, file = np.ones(3), 0, folder / "state.pickle"
    table, cell, noted = dict[str, float](), SimpleNamespace(), SimpleNamespace()
    if file.exists():
        begin, w, held = pickle.loads(file.read_bytes())
        if lost != "kept":
            mean.kept = held["kept"]  # type: ignore[attr-defined]
        if lost != "bias":
            table["bias"] = held["bias"]
        if lost != "gain":
            cell.gain = held["gain"]
        if lost != "warmth":
            LOCAL.warmth = held["warmth"]
    for step in range(begin, steps):
        yield step
        noted.error = w - math.sin(step)  # each step makes it before anybody takes it
        table["bias"] = 0.9 * table.get("bias", 0.0) + 0.01
        cell.gain = (cell.gain if hasattr(cell, "gain") else 1.0) * 0.99
        w = w - 0.1 * cell.gain * (noted.error + table["bias"]) / (
            tempered() + mean(float(np.abs(noted.error).mean()))
        )
        if step % 4 == 3:
            held = {"kept": mean.kept, "bias": table["bias"], "gain": cell.gain}  # type: ignore[attr-defined]
            file.write_bytes(pickle.dumps((step + 1, w, held | {"warmth": LOCAL.warmth})))


@pytest.mark.parametrize("lost", ["", "kept", "bias", "gain", "warmth"])
def test_it_is_named_at_the_resume(lost: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        yield from stepping(folder, steps, lost)

    found = check(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found).endswith(lost), found.text()
        assert found.suspects[0].got == "absent"
    assert not any(path.startswith(("cell", "noted")) for path in found.unseen), "a namespace holds nothing else"


@pytest.mark.parametrize("lost", [True, False])
def test_the_defaults_of_an_optimizer_come_after_what_was_lost(lost: bool) -> None:
    """A sweep builds each with another rate than its groups come to have: its defaults say which, and do nothing."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(3)
        nets = [torch.nn.Linear(3, 1) for _ in range(2)]
        rates, file = ([0.02, 0.03], folder / "state.pt")
        held: Any = torch.load(file) if file.exists() else None
        turn, begin = (0 if lost else held["turn"], held["step"]) if held else (0, 0)
        rates = [0.1, 0.1] if held else rates
        own = [torch.optim.SGD(net.parameters(), rate) for net, rate in zip(nets, rates, strict=True)]
        for at, (net, optimizer) in enumerate(zip(nets, own, strict=True)):
            if held:
                net.load_state_dict(held["nets"][at])
                optimizer.load_state_dict(held["own"][at])
        for step in range(begin, steps):
            yield step
            net, optimizer = nets[turn % 2], own[turn % 2]
            optimizer.zero_grad()
            net(torch.full((2, 3), math.sin(step))).square().mean().backward()
            optimizer.step()
            turn += 1 + step % 2
            if step % 4 == 3:
                held = {"nets": [n.state_dict() for n in nets], "own": [o.state_dict() for o in own]}
                torch.save(held | {"turn": turn, "step": step + 1}, file)

    found = check(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found) == "turn", found.text()
