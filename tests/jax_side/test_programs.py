"""Programs that the trainers of a process share: those that compute the same, and no others."""

from dataclasses import fields, replace
from typing import Any

import jax
import pytest

import jax_side
from jax_side import train
from jax_side.state import abstract_model
from parity.spec import RunSpec, load
from tests.support.small import bits_of, small, state_of

SPEC = small("mlp-digits", "float16", "steps=6")

NOT_COMPUTED = {
    "name": "other",
    "steps": 12,
    "save": ["save.every=3"],
    "validate_every": 0,
    "execution": ["execution.chunk=2", "execution.jax=loop"],
}
"""Fields of a run that decide when something is done, and no number of a step."""

COMPUTED = {
    "model": ["model.hidden=[8]"],
    "data": ["data.validation=100"],
    "optimizer": ["optimizer.eps=1e-7"],
    "schedule": ["schedule.warmup=2"],
    "precision": "bfloat16",
    "scaler": ["scaler.growth_interval=7"],
    "batch": 32,
    "accumulation": 2,
    "clip_norm": 0.5,
    "dropout": ["dropout.rate=0.2"],
    "seed": 1,
    "metric": "loss",
    "mesh": ["mesh.data=2"],
}


def changed(values: dict[str, Any], name: str) -> RunSpec:
    """Return the spec with one field changed."""
    value = values[name]
    if isinstance(value, list):
        return small("mlp-digits", "float16", "steps=6", *value)
    return replace(SPEC, **{name: value})


def shared(spec: RunSpec) -> bool:
    """Return whether a trainer of a spec has the programs of one of `SPEC`."""
    return jax_side.build(SPEC).programs is jax_side.build(spec).programs


def test_every_field_is_in_one_of_the_tables() -> None:
    assert {field.name for field in fields(RunSpec)} == {*NOT_COMPUTED, *COMPUTED}
    for values in (NOT_COMPUTED, COMPUTED):
        for name in values:
            assert getattr(changed(values, name), name) != getattr(SPEC, name)


@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_runs_that_compute_the_same_share_them(name: str) -> None:
    assert shared(SPEC)
    assert shared(changed(NOT_COMPUTED, name))


@pytest.mark.parametrize("name", COMPUTED)
def test_a_run_that_computes_something_else_has_its_own(name: str) -> None:
    assert not shared(changed(COMPUTED, name))


def curve(spec: RunSpec) -> tuple[Any, ...]:
    """Return all that a run computes."""
    trainer = jax_side.build(spec)
    return bits_of(list(trainer.steps(spec.steps))), trainer.evaluate(), state_of(trainer)


@pytest.mark.parametrize("name", ["mlp-digits", "linear-regression"])
def test_shared_programs_give_the_bits_of_a_trainer_s_own(name: str) -> None:
    first = small(name, "float32", "steps=6")
    second = small(name, "float32", "steps=6", "name=second", "save.every=5", "validate_every=5")  # same chunks
    train._programs.cache_clear()
    own = curve(second)
    train._programs.cache_clear()
    curve(first)
    compiled: list[str] = []
    note = lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        assert curve(second) == own
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert compiled == [], "the second trainer compiled"


def test_programs_that_nobody_used_for_long_are_let_go() -> None:
    kept = jax_side.build(SPEC).programs
    for seed in range(1, train.SHARED + 1):
        jax_side.build(replace(SPEC, seed=seed))
    assert jax_side.build(SPEC).programs is not kept


def test_the_presets_can_be_looked_up() -> None:
    for name in ("mlp-digits", "cnn-digits", "gpt-text", "linear-regression"):
        assert isinstance(hash(load(name)), int)


def test_shapes_and_dtypes_do_not_depend_on_who_asks_first() -> None:
    """Outside of the context in which a run of float64 is built."""
    abstract_model.cache_clear()
    params = abstract_model(small("mlp-digits", "float64"))[1]
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"float64"}


def test_a_state_of_another_structure_has_a_chunk_of_its_own() -> None:
    trainer = jax_side.build(SPEC)
    assert {record.loss_scale for record in trainer.steps(2)} == {SPEC.scaler.init_scale}
    known = trainer._chunk_fn
    whole = trainer.state
    trainer.state = whole._replace(scaler=None)
    assert {record.loss_scale for record in trainer.steps(4)} == {1.0}
    trainer.state = trainer.state._replace(scaler=whole.scaler)
    assert trainer._chunk_fn is known, "that of the first structure was traced already"
