"""A pair builds two trainers from one start and makes every run once."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from parity.contract import StepRecord, Trainer, Validation
from parity.errors import StateError
from parity.reference.across import TwinPair
from parity.sides import Side
from parity.spec import RunSpec, load
from parity.state import TrainingState
from tests.support.small import record, small

SPEC = small("mlp-digits", "float32", "steps=10")


class Line:
    """A trainer of one weight that halves at every step: what a pair drives, and no more."""

    side, plan = "line", SPEC.plan

    def __init__(self, weight: float) -> None:
        self.weight, self.step, self.trained = weight, 0, 0

    def steps(self, until: int) -> Iterator[StepRecord]:
        while self.step < until:
            self.step, self.weight, self.trained = self.step + 1, self.weight / 2, self.trained + 1
            yield record(self.step, loss=self.weight)

    def evaluate(self) -> Validation:
        return Validation(attempt=0, step=self.step, metric="loss", value=self.weight, loss=self.weight)

    def export_state(self, *, copy: bool = True) -> TrainingState:
        scalars = {"counters.step": self.step, "config.spec": "line", "config.hash": "0"}
        return TrainingState(arrays={"model.params.weight": np.array([self.weight])}, scalars=scalars)

    def import_state(self, state: TrainingState) -> None:
        self.weight, self.step = float(state.arrays["model.params.weight"][0]), state.scalars["counters.step"]


class Lines:
    """A side that builds such trainers."""

    def __init__(self, weight: float = 1.0, cpus: int = 1) -> None:
        self.weight, self.cpus = weight, cpus

    def build(self, spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> Trainer:
        return cast(Trainer, Line(self.weight))

    def topology(self, spec: RunSpec) -> dict[str, Any]:
        return {"cpus": self.cpus}


def pair(first: Lines, second: Lines, spec: RunSpec = SPEC, **options: Any) -> TwinPair:
    return TwinPair(spec, cast(Mapping[str, Side], {"a": first, "b": second}), **{"cache": False, **options})


def trained(of: TwinPair) -> list[int]:
    return [cast(Line, trainer).trained for trainer in of.trainers.values()]


def test_two_sides_that_start_differently_are_no_pair_and_the_leaf_is_named() -> None:
    with pytest.raises(StateError, match="the sides start differently") as caught:
        pair(Lines(1.0), Lines(1.5))
    assert caught.value.leaf == "model.params.weight"


def test_native_dropout_has_no_pair() -> None:
    native = load("mlp-digits", None, ["dropout.rate=0.5", "dropout.generator=native"])
    with pytest.raises(StateError, match="native dropout streams"):
        pair(Lines(), Lines(), native)
    pair(Lines(), Lines(), load("mlp-digits", None, ["dropout.generator=native", "dropout.rate=0"]))


def test_every_run_is_made_once_and_handed_over_in_the_middle() -> None:
    twins = pair(Lines(), Lines())
    assert trained(twins) == [0, 0]
    curve = twins.curve("a")
    assert [curve[step].loss for step in curve] == [2.0**-step for step in range(1, 11)]
    assert twins.middle == 5
    state = twins.middle_state("a")
    assert (state.scalars["counters.step"], state.arrays["model.params.weight"].tolist()) == (5, [2.0**-5])
    assert twins.validation("a").loss == 2.0**-10
    assert trained(twins) == [10, 0]
    assert twins.curve("b") == curve
    assert trained(twins) == [10, 10]


def test_the_envelope_is_that_of_perturbed_starts_of_both_sides() -> None:
    twins = pair(Lines(), Lines(), seeds=3)
    found = twins.envelope
    assert (found.seeds, found.sides, found.width.shape) == (3, ("line", "line"), (10,))
    assert twins.envelope is found
    assert trained(twins) == [10 + 4 * 10] * 2, "its own run, and for the envelope one more and three perturbed ones"


def test_the_noise_floor_is_one_unit_in_the_last_place_of_the_start() -> None:
    assert pair(Lines(), Lines()).floor in (2.0**-53, 2.0**-52)


@pytest.mark.parametrize(
    ("sources", "cpus", "again"),
    [({"a": "1", "b": "1"}, 1, 0), ({"a": "1", "b": "2"}, 1, 30), ({"a": "1", "b": "1"}, 2, 30), ({"a": "1"}, 1, 30)],
)
def test_an_envelope_is_kept_for_the_same_sources_and_topology_only(
    sources: dict[str, str], cpus: int, again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of perturbed runs: 30 where the envelope is measured anew, none where it is read."""
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    known = {"a": "1", "b": "1"}
    first = pair(Lines(), Lines(), seeds=2, cache=True, sources=known)
    second = pair(Lines(), Lines(cpus=cpus), seeds=2, cache=True, sources=sources)
    width = first.envelope.width
    assert trained(first) == [40, 40]
    assert second.envelope.width.tolist() == width.tolist()
    assert trained(second) == [10 + again] * 2


def test_an_envelope_of_a_side_whose_sources_nobody_knows_is_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    for _ in range(2):
        twins = pair(Lines(), Lines(), seeds=2, cache=True, sources={"a": "1"})
        assert twins.envelope.seeds == 2
        assert trained(twins) == [40, 40]
    assert list(tmp_path.iterdir()) == []
