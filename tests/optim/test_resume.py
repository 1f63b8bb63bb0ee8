"""Stopped at a random step: continued bitwise on its side, and handed over there and back without a difference."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_side.scaler import unscale
from parity.schedules import Schedule
from parity.state import OPTIMIZERS, compare_states
from tests.optim.loops import COMPONENTS, STEPS, Case, JaxLoop, TorchLoop
from tests.optim.test_exact import EDGES
from tests.optim.walks import IN_TORCH

BAR = 1e-12
SCHEDULES = ("constant", "one-cycle", "plateau")
SHARP = ("NAdam", "Rprop", "ASGD", "Adafactor", "Muon", "Lion")
"""Optimizers whose state is more than moments."""

RATES = {"Lion": 1e-3, "Adadelta": 0.5}

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step:UserWarning")
"""PyTorch's advice where the first steps overflow; the schedule follows steps, also those without an update."""


def case(name, schedule, precision):
    own = {"lr": RATES[name]} if name in RATES else {}
    return Case(name, schedule, precision, {**EDGES.get(name, {}), **own})


def cells(precisions, names, quick):
    """Return every cell; `make test` runs one of each quick optimizer, and each combination about as often."""
    pairs = list(product(SCHEDULES, precisions))
    order = [*quick, *(name for name in names if name not in quick)]
    return [
        pytest.param(
            case(name, schedule, precision),
            marks=() if name in quick and number == at % len(pairs) else pytest.mark.soak,
            id=f"{name}-{schedule}-{precision}",
        )
        for at, name in enumerate(order)
        for number, (schedule, precision) in enumerate(pairs)
    ]


def stops(case):
    """Return two random steps, the first before the second."""
    generator = np.random.default_rng([*case.name.encode(), *case.schedule.encode(), len(case.precision)])
    first = int(generator.integers(3, STEPS - 6))
    return first, int(generator.integers(first + 2, STEPS - 2))


def require_sharp(case, records, stop):
    """Fail unless the case has what it is about on both sides of a stop: skipped steps, a rate that moved."""
    if case.how.half:
        assert any(r.skipped for r in records[:stop])
        assert any(r.skipped for r in records[stop:])
        assert sum(not r.skipped for r in records) > STEPS / 2
    assert (len({r.rates for r in records}) > 1) == (case.schedule != "constant")


def first_difference(ours, theirs, bar=BAR):
    """Return the step and the component that differ first between two runs; None if none does."""
    for step, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        for name, component in COMPONENTS.items():
            a, b = getattr(one, name), getattr(two, name)
            close = abs(a - b) <= bar * abs(b) if name in ("norm", "loss") and np.isfinite([a, b]).all() else False
            if not close and not np.array_equal(a, b, equal_nan=True):
                return step, component
    return None


def shown(state):
    """Return the scalars of a state, without what only PyTorch keeps (a scheduler's keys in the groups) and without
    the constants of the schedule, which PyTorch has for each group."""
    scalars = {k: v for k, v in state.scalars.items() if k not in ("schedule.rule", "schedule.position")}
    kind = OPTIMIZERS[scalars["optimizer.name"]]
    known = {*kind.arguments, *kind.flags}
    groups = [
        {"params": sorted(group["params"]), **{k: v for k, v in group.items() if k in known}}
        for group in scalars["optimizer.groups"]
    ]
    moved = {k: v for k, v in scalars["schedule.groups"].items() if k != "initial"}
    return {"schedule.groups": moved, "optimizer.groups": groups} | {
        k: v for k, v in scalars.items() if k not in ("schedule.groups", "optimizer.groups")
    }


def apart(ours, theirs):
    """Return the leaves in which two states differ: scalars by anything, arrays by more than rounding."""
    one, two = shown(ours), shown(theirs)
    assert one.keys() == two.keys()
    assert ours.arrays.keys() == theirs.arrays.keys()
    arrays = sorted(theirs.arrays, key=lambda leaf: leaf.startswith("model"))
    return [name for name in two if one[name] != two[name]] + [
        leaf for leaf in arrays if not np.allclose(ours.arrays[leaf], theirs.arrays[leaf], rtol=1e-10, atol=1e-12)
    ]


@pytest.mark.parametrize("case", cells(("float64", "float16"), OPTIMIZERS, SHARP))
def test_a_run_that_was_stopped_in_jax_continues_bitwise(case):
    require_bitwise(JaxLoop, case)


@pytest.mark.parametrize("case", cells(("float64", "float16"), IN_TORCH, IN_TORCH))
def test_a_run_that_was_stopped_in_pytorch_continues_bitwise(case):
    require_bitwise(TorchLoop, case)


def require_bitwise(loop, case):
    """Fail unless a run that was stopped and continued has the records and the state of one that was not."""
    stop, _ = stops(case)
    whole, stopped = loop(case), loop(case)
    records = whole.until(STEPS)
    require_sharp(case, records, stop)
    before, again = stopped.until(stop), loop(case, stopped.save())
    assert first_difference(before + again.until(STEPS), records, bar=0.0) is None
    assert compare_states(again.save(), whole.save()) == []


@pytest.mark.parametrize("case", cells(("float64", "rounded to float16"), IN_TORCH, IN_TORCH))
def test_a_run_is_handed_over_to_jax_and_back_without_a_difference(case, exact_muon):
    require_spliced(TorchLoop, JaxLoop, case)


@pytest.mark.parametrize("case", cells(("float64", "rounded to float16"), IN_TORCH, ("NAdam", "Adafactor")))
def test_a_run_is_handed_over_to_pytorch_and_back_without_a_difference(case, exact_muon):
    require_spliced(JaxLoop, TorchLoop, case)


def require_spliced(own, other, case):
    """Fail unless a run that was handed over twice has the records and the state of one that stayed where it was."""
    first, second = stops(case)
    alone, one = own(case), own(case)
    records, spliced = alone.until(STEPS), one.until(first)
    require_sharp(case, records, first)
    two = other(case, one.save())
    spliced += two.until(second)
    three = own(case, two.save())
    spliced += three.until(STEPS)
    assert first_difference(spliced, records) is None
    assert apart(three.save(), alone.save()) == []


class ClippedTooEarly(JaxLoop):
    """Gradients are clipped while they are still scaled."""

    def gradients(self, grads, scale):
        return unscale(self.clip.update(grads, optax.EmptyState())[0], scale)


class NeverUnscaled(JaxLoop):
    """Gradients are clipped, which hides that they are scaled."""

    def gradients(self, grads, scale):
        return self.clip.update(grads, optax.EmptyState())[0]


class RateOfTheNextStep(JaxLoop):
    """The schedule moves before the update."""

    def moved(self):
        ahead = Schedule.at(self.schedule.rule, self.schedule.position, self.schedule.groups)
        ahead.step()
        kept, self.schedule = self.schedule, ahead
        found = super().moved()
        self.schedule = kept
        return found


class RateOfUpdates(JaxLoop):
    """The schedule follows updates, as Optax's count does, not steps."""

    def advance(self):
        if float(self.scaler.growth_tracker) or float(self.scaler.scale) > self.before:
            super().advance()
        self.before = float(self.scaler.scale)

    before = 0.0


class GroupsSwapped(JaxLoop):
    """Each group gets the rate of the other."""

    def moved(self):
        found = super().moved()
        one, two = found["learning_rate"]
        found["learning_rate"] = {one: found["learning_rate"][two], two: found["learning_rate"][one]}
        return found


class UpdatedInSpiteOfAnOverflow(JaxLoop):
    """A step that overflowed takes the part of the gradients that is finite."""

    def gradients(self, grads, scale):
        return jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), super().gradients(grads, scale))


@pytest.mark.parametrize(
    ("faulty", "component"),
    [
        (ClippedTooEarly, "gradients"),
        (NeverUnscaled, "gradients"),
        (RateOfTheNextStep, "optimizer.groups"),
        (RateOfUpdates, "schedule.groups"),
        (GroupsSwapped, "optimizer.groups"),
        (UpdatedInSpiteOfAnOverflow, "scaler.skipped"),
    ],
)
def test_a_fault_of_the_loop_is_found_and_named(faulty, component):
    case_ = case("AdamW", "one-cycle", "rounded to float16")
    ours, theirs = faulty(case_), TorchLoop(case_)
    for step in range(1, STEPS):
        found = first_difference(ours.until(step), theirs.until(step))
        leaves = apart(ours.save(), theirs.save())
        if found or leaves:
            break
    assert (found[1] if found else leaves[0]) == component
