"""Faults of a conversion: a state that means something else on the other side is seen and named."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import optax
import pytest

import jax_side.optimizer
from parity.reference.across import TwinPair, check_handover, check_twins
from parity.spec import load
from parity.state import TrainingState
from tests.faults.fault import MLP, Planted, nothing

SPEC = load(MLP[0], "float64", [*MLP[1], "model.hidden=[16, 16, 16]", "steps=20"])
TO_JAX, TO_TORCH = ("torch", "jax"), ("jax", "torch")
MOMENTS = ("optimizer.first_moment.", "optimizer.second_moment.")


def pair(torch=nothing, jax=nothing):
    return TwinPair(SPEC, {"jax": Planted("jax", jax), "torch": Planted("torch", torch)}, cache=False)


@cache
def clean():
    return pair()


@pytest.mark.parametrize("path", [TO_JAX, TO_TORCH, ("torch", "jax", "torch")])
def test_a_sound_handover_holds(path):
    assert check_handover(clean(), path).verdict == "holds"


def test_sound_twins_agree():
    assert check_twins(clean()).verdict == "holds"


def counted_from_one(trainer):
    """Export the step after the one that was completed."""
    export = trainer.export_state

    def late():
        state = export()
        step = state.scalars["counters.step"]
        scalars = {**state.scalars, "counters.step": step + 1} if step else state.scalars
        return replace(state, scalars=scalars)

    trainer.export_state = late


def imported_with(change):
    """Return a plant whose import changes the leaves it is given."""

    def plant(trainer):
        take = trainer.import_state

        def changed(state):
            if state.scalars["counters.step"] == 0:
                return take(state)
            leaves = change({**state.arrays, **state.scalars})
            arrays = {leaf: leaves[leaf] for leaf in state.arrays}
            return take(TrainingState(arrays=arrays, scalars={leaf: leaves[leaf] for leaf in state.scalars}))

        trainer.import_state = changed

    return plant


def by_place(leaves):
    """Match moments by place after sorting one side's names backwards among layers of one shape."""
    out = dict(leaves)
    for slot in MOMENTS:
        for kind in ("weight", "bias"):
            one, two = (f"{slot}layers.{i}.{kind}" for i in (1, 2))
            out[one], out[two] = leaves[two], leaves[one]
    return out


def fresh_optimizer(leaves):
    zeroed = {leaf: value * 0 for leaf, value in leaves.items() if leaf.startswith(MOMENTS)}
    return {**leaves, **zeroed, "optimizer.step": 0}


def test_step_convention_offset():
    record = check_handover(pair(torch=counted_from_one), TO_JAX)
    assert record.verdict == "broken"
    assert record.suspects == ("counters.step",)


@pytest.mark.parametrize("path", [TO_JAX, TO_TORCH])
@pytest.mark.parametrize(
    ("fault", "suspects"),
    [
        pytest.param(by_place, {"first_moment", "second_moment"}, id="opt_identity_by_position_vs_name"),
        pytest.param(fresh_optimizer, {"first_moment", "second_moment", "step"}, id="load_model_resets_optimizer"),
    ],
)
def test_lost_slots_are_named(fault, suspects, path):
    receiver = path[-1]
    record = check_handover(pair(**{receiver: imported_with(fault)}), path)
    assert record.verdict == "broken"
    assert set(record.suspects) == {f"optimizer.{slot}" for slot in suspects}


clean_adam = jax_side.optimizer.scale_by_adam


def epsilon_hat(b1, b2, eps):
    """Adam with its epsilon beside the uncorrected root, as TensorFlow has it."""

    def update(updates, state, params=None):
        _, state = clean_adam(b1, b2, eps).update(updates, state, params)
        root = jnp.sqrt(1 - b2**state.count) / (1 - b1**state.count)
        return jax.tree.map(lambda m, v: root * m / (jnp.sqrt(v) + eps), state.mu, state.nu), state

    return optax.GradientTransformation(clean_adam(b1, b2, eps).init, update)


def test_adam_epsilon_convention(monkeypatch):
    """The same number in another place of the formula: a semantic difference behind the first update."""
    monkeypatch.setattr(jax_side.optimizer, "scale_by_adam", epsilon_hat)
    # Programs of trainers before were traced with the clean one.
    monkeypatch.setattr(jax_side.train, "programs", jax_side.train.Programs)
    record = check_twins(pair())
    assert record.verdict == "broken"
    assert record.suspects[0] == "optimizer"
