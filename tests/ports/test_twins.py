"""The twins check on a trainer and its port: what is alike holds, every planted fault is named."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import parity
from parity.checks.ports.series import Trained
from parity.errors import SpecError, TrainerError
from parity.results import Crossing
from tests.ports import pair_nnx
from tests.ports.pair_numpy import FAULTS, STEPS, port, train


def train_narrow(folder: Path, steps: int = STEPS) -> Iterator[int]:
    return train(folder, steps, "float32")


def agree(a: Any, b: Any, **settings: Any) -> Crossing:
    return parity.twins_agree(a, b, steps=STEPS, mode="inline", **{"seeds": 2, **settings})


@pytest.mark.parametrize(("trainer", "dtype"), [(train, "float64"), (train_narrow, "float32")])
def test_a_port_with_other_names_layouts_and_sums_trains_alike(trainer: Any, dtype: str) -> None:
    found = agree(trainer, port(dtype=dtype))
    assert (found.verdict, found.pairs, found.unpaired, found.precision) == ("holds", 12, (), dtype)
    assert found.max_rel is not None
    assert found.max_rel < (1e-14 if dtype == "float64" else 1e-6)
    assert (found.multiple is None) == (dtype == "float64")
    assert found.compared == STEPS


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_a_port_is_found_and_its_component_comes_first(fault: str) -> None:
    found = agree(train, port(fault), seeds=1)
    assert (found.verdict, found.components[0]) == ("broken", FAULTS[fault])
    assert found.suspects[0].advice
    assert len(found.text().splitlines()) <= 25


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_below_float64_every_fault_is_found(fault: str) -> None:
    """What comes first is named less sharply: a decay of 1.01 % shows in the loss before it shows in an array."""
    found = agree(train_narrow, port(fault, "float32"))
    assert found.verdict == "broken"
    if fault not in ("forward", "decay", "late"):
        assert found.components[0] == FAULTS[fault]


def test_a_nan_on_one_side_is_broken_and_on_both_nothing_is_judged() -> None:
    def both(folder: Path, steps: int = STEPS) -> Iterator[int]:
        return port("nan")(folder, steps)

    assert agree(train, port("nan")).components[0] == "loss"
    found = agree(both, port("nan"))
    assert found.verdict == "inconclusive"
    assert "on both sides" in found.text()


def fragile(folder: Path, steps: int = STEPS) -> Iterator[int]:
    """A trainer whose numbers are lost when its start is moved at all."""
    weights = np.linspace(1.0, 2.0, 6, dtype=np.float32)
    whole = weights.tobytes()
    for step in range(steps):
        yield step
        if not step and weights.tobytes() != whole:
            weights *= np.float32("nan")
        loss = float((weights**2).sum())
        weights *= np.float32(0.9 + 0 * loss)


@pytest.mark.parametrize("seen", [True, False], ids=["loss", "no loss"])
def test_an_envelope_of_a_run_that_diverged_when_nudged_judges_nothing(seen: bool) -> None:
    def same(folder: Path, steps: int = STEPS) -> Iterator[int]:
        weights = np.linspace(1.0, 2.0, 6, dtype=np.float32)
        for step in range(steps):
            yield step
            loss = float((weights**2).sum())
            weights *= np.float32(0.9)
            if not seen:
                del loss

    found = agree(fragile, same)
    assert found.verdict == "inconclusive"
    assert "the envelope is infinite and judges nothing" in found.text()
    assert (found.max_rel is not None) == seen


@pytest.fixture
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("wide")
def test_pytorch_and_its_port_to_nnx_train_alike() -> None:
    found = parity.twins_agree(pair_nnx.train_torch, pair_nnx.train_nnx, steps=12, mode="inline", seeds=1)
    assert (found.verdict, found.pairs, found.unpaired) == ("holds", 24, ())
    assert found.max_rel is not None
    assert found.max_rel < 1e-14


NNX = {
    "epsilon": "loss",
    "decay": "optimizer.hyperparameters",
    "beta2": "optimizer.hyperparameters",
    "order": "data.batch",
    "smoothing": "loss",
    "clip": "optimizer.first_moment",
    "ema": "ema",
    "schedule": "model.params",
    "nesterov": "model.params",
    "rate": "model.params",
    "start": "model.params",
}


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("fault", [pytest.param(one, marks=pytest.mark.soak) if at > 2 else one
                                   for at, one in enumerate(NNX)])  # fmt: skip
def test_what_ports_to_nnx_get_wrong_is_named(fault: str) -> None:
    port_nnx = partial(pair_nnx.train_nnx, fault=fault)
    found = parity.twins_agree(pair_nnx.train_torch, port_nnx, steps=12, mode="inline", seeds=1)
    assert (found.verdict, found.components[0]) == ("broken", NNX[fault])


def other_length(folder: Path, steps: int = STEPS) -> Iterator[int]:
    for step in train(folder, steps):
        if step != 7:
            yield step


def unseeded(folder: Path, steps: int = STEPS) -> Iterator[int]:
    params = np.random.default_rng().normal(size=3)
    for step in range(steps):
        yield step
        params = params * 0.9
        loss = float(params.sum())
        assert np.isfinite(loss)


def constant(folder: Path, steps: int = STEPS) -> Iterator[int]:
    params = np.arange(3.0)
    loss = 1.0
    yield from range(steps)
    assert params.sum() > loss


def fails(folder: Path, steps: int = STEPS) -> Iterator[int]:
    yield 0
    yield 1
    raise RuntimeError("out of memory")


def test_what_cannot_be_judged_says_so() -> None:
    """Neither a pass nor a traceback: a verdict with its reason, or one clear error."""
    assert agree(train, other_length).components == ("counters.step",)
    assert "part by themselves" in agree(train, unseeded).text()
    alike = agree(constant, lambda folder, steps: constant(folder, steps))
    assert alike.verdict == "inconclusive"
    assert "no parameter changed" in alike.text()
    with pytest.raises(SpecError, match="is train_a itself"):
        agree(train, train)
    with pytest.raises(TrainerError, match=r"(?s)fails: the function failed.*out of memory"):
        agree(train, fails)
    with pytest.raises(SpecError, match="steps: must be a whole number"):
        parity.twins_agree(train, port(), steps=1)


def test_a_broken_pair_is_an_assertion_that_says_what_differs() -> None:
    with pytest.raises(parity.TwinsDifferError, match="do not train alike") as caught:
        parity.assert_twins(train, port("beta2"), steps=STEPS, mode="inline", seeds=1)
    assert caught.value.crossing.record().suspects[0] == "optimizer.second_moment"
    assert parity.assert_twins(train, port(), steps=STEPS, mode="inline", seeds=1).verdict == "holds"


def marked(folder: Path, steps: int = STEPS) -> None:
    """Say what the state is at each mark; what is new at the return was never said."""
    weights, loss = np.linspace(-1.0, 1.0, 6), 0.0
    for step in range(steps):
        parity.mark(step, params=weights, loss=loss)
        loss = float((weights**2).sum())
        weights = weights - 0.1 * 2 * weights


class Looped:
    """The same in a class."""

    def __init__(self) -> None:
        self.weights, self.loss = np.linspace(-1.0, 1.0, 6), 0.0

    def run(self, steps: int) -> None:
        for step in range(steps):
            parity.mark(step)
            self.loss = float((self.weights * self.weights).sum())
            self.weights = self.weights - self.weights * 2 * 0.1


def looped(folder: Path, steps: int = STEPS) -> None:
    Looped().run(steps)


def test_marks_may_say_what_the_state_is_and_loops_may_lie_in_classes() -> None:
    found = agree(looped, marked, seeds=1)
    assert (found.verdict, found.pairs, found.compared) == ("holds", 1, STEPS - 1)
    assert found.max_rel is not None
    assert found.max_rel < 1e-14


@pytest.mark.parametrize(
    ("trainer", "ported", "runs"),
    [
        (train_narrow, port(dtype="float32"), 2),
        (train_narrow, port("beta2", dtype="float32"), 16),
        (train, port(), 4),
    ],
    ids=["float32, alike", "float32, another", "float64"],
)
def test_noise_is_measured_until_it_decides(
    trainer: Any, ported: Any, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    series = Trained.series

    def counted(self: Trained, name: str, *args: Any, **settings: Any) -> Any:
        made.append(f"{self.name} {name}")
        return series(self, name, *args, **settings)

    monkeypatch.setattr(Trained, "series", counted)
    agree(trainer, ported, seeds=None)
    nudged = [one for one in made if "nudged-" in one]
    assert len(nudged) == len(set(nudged)) == 2 * runs
