"""The few ways to plant a fault: behind a restore, around a save, into the neutral leaves, into the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax

from jax_side.train import programs
from parity.spec import RunSpec
from parity.state import TrainingState
from tests.faults.fault import Plant

__all__ = [
    "after_restore",
    "around_save",
    "compute_as",
    "ignore",
    "reordered",
    "reset",
    "rewrite",
    "rewritten",
    "with_counters",
]

Leaves = dict[str, Any]
"""Leaf path to array or scalar."""


def after_restore(spoil: Plant) -> Plant:
    """Return a plant that spoils the trainer behind every restore."""

    def plant(trainer: Any) -> None:
        restore = trainer.restore

        def restore_and_spoil(which: Any) -> int:
            step = restore(which)
            spoil(trainer)
            return step

        trainer.restore = restore_and_spoil

    return plant


def around_save(before: Plant, after: Plant) -> Plant:
    """Return a plant that changes the trainer while a checkpoint is taken, and changes it back."""

    def plant(trainer: Any) -> None:
        save = trainer.save

        def save_changed(metric: float | None) -> None:
            before(trainer)
            save(metric)
            after(trainer)

        trainer.save = save_changed

    return plant


def compute_as(trainer: Any, spec: RunSpec) -> None:
    """Let a JAX trainer compute the steps of another spec."""
    state = trainer.state
    trainer.programs = programs(spec, trainer.placement)
    trainer._structure = jax.tree.structure(None)  # so that the next state is given to what computes it now
    trainer.state = state


def rewrite(trainer: Any, change: Callable[[Leaves], Leaves]) -> None:
    """Give a trainer some leaves of its state anew: `change` gets all leaves and returns those that change."""
    state = trainer.export_state()
    changed = change({**state.arrays, **state.scalars})
    arrays = {leaf: changed.get(leaf, value) for leaf, value in state.arrays.items()}
    scalars = {leaf: changed.get(leaf, value) for leaf, value in state.scalars.items()}
    assert changed, "nothing is planted"
    assert {*changed} <= {*arrays, *scalars}
    trainer.import_state(TrainingState(arrays=arrays, scalars=scalars))


def rewritten(change: Callable[[Leaves], Leaves]) -> Plant:
    """Return a plant that rewrites leaves behind every restore."""
    return after_restore(lambda trainer: rewrite(trainer, change))


def reset(*prefixes: str) -> Plant:
    """Return a plant that leaves what lies under some paths as a new trainer has it, whatever was restored."""

    def plant(trainer: Any) -> None:
        start = trainer.export_state()
        fresh = {
            leaf: value for leaf, value in {**start.arrays, **start.scalars}.items() if leaf.startswith(prefixes)
        }
        rewritten(lambda leaves: fresh)(trainer)

    return plant


def ignore(*path: str) -> Plant:
    """Return a plant that turns a method, found by attribute names, into one that does nothing."""

    def plant(trainer: Any) -> None:
        owner = trainer
        for name in path[:-1]:
            owner = getattr(owner, name)
        setattr(owner, path[-1], lambda *args, **kwargs: None)

    return plant


def with_counters(change: Callable[[Any], dict[str, int]]) -> Plant:
    """Return a plant that changes host counters behind every restore."""

    def spoil(trainer: Any) -> None:
        trainer.counters = replace(trainer.counters, **change(trainer.counters))

    return after_restore(spoil)


def reordered(order: Callable[[Any, Callable[[int], Any], int], Any]) -> Plant:
    """Return a plant that orders the samples of an epoch otherwise behind a restore, at an unchanged position.

    Args:
        order: Given the trainer, the right order as a function of the epoch, and the epoch, returns the wrong one.
    """

    def spoil(trainer: Any) -> None:
        stream = trainer.feed._stream
        right = stream._order
        stream._order = lambda epoch: order(trainer, right, epoch)

    return after_restore(spoil)


def leaves_under(leaves: Leaves, prefixes: Iterable[str]) -> Leaves:
    """Return the leaves under some paths."""
    return {leaf: value for leaf, value in leaves.items() if leaf.startswith(tuple(prefixes))}
