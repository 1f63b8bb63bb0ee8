"""The handover check on any trainer: there, and there and back; what a conversion loses is named."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

import parity
from parity.errors import SpecError, TrainerError
from tests.ports import pair_nnx
from tests.ports.pair_numpy import STEPS, port, to_port, to_trainer, train

LOST = {
    "p": "model.params",
    "m": "optimizer.first_moment",
    "v": "optimizer.second_moment",
    "e": "ema",
    "count": "optimizer.step",
    "transpose": "model.params",
    "all": "checkpoint.restore",
}


def hand_over(convert: Any = to_port, **settings: Any) -> Any:
    settings = {"steps": STEPS, "stop_at": 13, "mode": "inline", "seeds": 1, **settings}
    return parity.hands_over(train, port(), convert=convert, **settings)


def test_a_run_goes_there_and_back_without_a_jump() -> None:
    found = hand_over(back=to_trainer)
    assert (found.verdict, found.handovers, found.pairs) == ("holds", (10, 20), 12)
    assert found.max_rel is not None
    assert found.max_rel < 1e-14
    assert found.compared == 20 + 10
    assert found.record().name == "handover"


@pytest.mark.parametrize("lost", LOST)
def test_what_the_conversion_loses_is_named(lost: str) -> None:
    found = hand_over(partial(to_port, lost=lost))
    assert (found.verdict, found.components[0]) == ("broken", LOST[lost])
    assert found.suspects[0].advice


@pytest.mark.parametrize("lost", ["p", "m", "v", "e"])
def test_what_the_way_back_loses_is_named(lost: str) -> None:
    found = hand_over(back=partial(to_trainer, lost=lost))
    assert (found.verdict, found.components[0]) == ("broken", LOST[lost])
    assert found.suspects[0].scenario == "back"


def test_a_wrong_position_is_found() -> None:
    found = hand_over(partial(to_port, lost="position"))
    assert (found.verdict, found.components[0]) == ("broken", "counters.step")


def test_pytorch_hands_over_to_nnx_and_takes_back() -> None:
    with jax.enable_x64(True):
        found = parity.hands_over(
            pair_nnx.train_torch, pair_nnx.train_nnx, convert=pair_nnx.to_nnx, back=pair_nnx.to_torch,
            steps=14, stop_at=7, mode="inline", seeds=1,
        )  # fmt: skip
    assert (found.verdict, found.handovers, found.pairs) == ("holds", (5, 10), 24)


def writes_nothing(source: Path, target: Path) -> None:
    assert (source / "state.npz").exists()


def raises(source: Path, target: Path) -> None:
    raise KeyError("exp_avg")


def test_a_conversion_that_fails_is_one_clear_error() -> None:
    with pytest.raises(TrainerError, match="wrote nothing into the folder"):
        hand_over(writes_nothing)
    with pytest.raises(TrainerError, match="failed with KeyError: 'exp_avg'"):
        hand_over(raises)
    with pytest.raises(TrainerError, match="saved nothing in its folder before step 3"):
        hand_over(stop_at=3)
    with pytest.raises(SpecError, match="stop_at: must lie between"):
        hand_over(stop_at=STEPS)
    with pytest.raises(parity.HandoverBrokenError, match="the handover is broken"):
        parity.assert_handover(
            train, port(), convert=partial(to_port, lost="m"), steps=STEPS, stop_at=13, mode="inline", seeds=1
        )


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    """Its runs would continue from what an earlier check left."""
    (tmp_path / "reference").mkdir()
    for check in (lambda: hand_over(workdir=tmp_path), lambda: parity.resumes(train, steps=30, workdir=tmp_path)):
        with pytest.raises(SpecError, match=r"workdir: .* holds reference; give a new or an empty directory"):
            check()
