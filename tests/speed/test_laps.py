"""What is timed is the same work: a way that does other work, or a round of another one, is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from parity.contract import StepRecord
from parity.errors import WorkError
from parity.twins.speed import Lap, laps, same_work

pytestmark = pytest.mark.breaks_first


def records(*losses: float, **other: Any) -> list[StepRecord]:
    own = {"attempt": 0, "lr": 0.1, "grad_norm": 1.0, "loss_scale": 1.0, "skipped": False, "batch": "b", "epoch": 0}
    rest = {"samples": 8, "seconds": 0.1}
    return [StepRecord(**own | rest | {"step": n, "loss": loss} | other) for n, loss in enumerate(losses, 1)]


@pytest.fixture
def lap(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a lap of what its trainer gives from run to run."""
    monkeypatch.setattr(laps, "rewinding", lambda trainer: lambda: None)

    def make(mode: str, *runs: list[StepRecord]) -> Lap:
        left = list(runs)
        made = Lap(mode=mode, trainer=SimpleNamespace(steps=lambda until: left.pop(0)), steps=len(runs[0]))
        made.warm()
        return made

    return make


def test_two_ways_of_the_same_work_pass_and_so_do_equal_rounds(lap: Any) -> None:
    a = lap("scan", records(1.0, 0.5), records(1.0, 0.5))
    a.run()
    assert len(a.seconds) == 1
    same_work(a, lap("loop", records(1.0 + 1e-6, 0.5)), "float32")


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (records(1.0), "loop: took 1 steps, scan took 2"),
        (records(1.0, 0.5, batch="c"), "another batch than scan at step 1"),
        (records(1.0, 0.5, lr=0.2), "another lr than scan at step 1"),
        (records(1.0, 0.51), "has the loss 0.51 at step 2, scan has 0.5"),
        (records(1.0, float("nan")), "has the loss nan at step 2"),
    ],
)
def test_a_way_that_does_other_work_is_named(lap: Any, other: list[StepRecord], problem: str) -> None:
    with pytest.raises(WorkError, match=problem) as found:
        same_work(lap("scan", records(1.0, 0.5)), lap("loop", other), "float32")
    assert (found.value.mode, found.value.exit_code) == ("loop", 1)


@pytest.mark.parametrize("second", [records(1.0, 0.5000000001), records(1.0), records(1.0, 0.5, 0.4)])
def test_a_round_that_does_other_work_than_the_first_is_named(lap: Any, second: list[StepRecord]) -> None:
    with pytest.raises(WorkError, match=r"loop: round 1 has another loss at step [23]"):
        lap("loop", records(1.0, 0.5), second).run()
