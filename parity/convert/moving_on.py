"""A state of PyTorch that goes on to the step of a tree of JAX: counters, schedule and loss scale are set.

What else moves with training stays as it was recorded: it is refused, unless a reset asks for it, and what nobody
knows is said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from parity.convert.branches import StatePart, branches, node_at
from parity.convert.components import STEP_NAMES
from parity.convert.ledger import Ledger
from parity.convert.moving import LOSS_SCALE, MOVING, SCHEDULE, Moved, carry_scaler, carry_schedule
from parity.formats import Array, InMemory, Tree, leaf_name, leaves, number_of

__all__ = ["move_on"]

MOVES = ("schedule", "loss scaler", "random streams", "data position", "counters", "best so far")
"""Components that training changes; of most of them plain JAX state says nothing."""

HELD = ("optimizer", "averaged parameters")
"""Components that training changes, as far as their arrays have no leaf in JAX."""

MOST_SHOWN = 6


def move_on(
    tree: dict[Any, Any],
    moved: Moved,
    jax: Mapping[str, Any],
    *,
    kept: Collection[int],
    reset: Collection[str],
    ledger: Ledger,
    where: str,
) -> Tree:
    """Set counters, schedule and loss scale to those of the JAX state, and refuse what nobody moved on.

    Args:
        tree: PyTorch's, as it was; changed in place.
        moved: How far the tree of JAX is.
        jax: Its leaves by name.
        kept: Identities of the arrays that are as they were, as JAX has no leaf for them.
        reset: Components and keys that may stay as they were.
        ledger: Takes a line for each.
        where: The checkpoint, for messages.
    """
    scale, tracker = (jax.get(f"{LOSS_SCALE}.{name}") for name in ("scale", "growth_tracker"))
    carried = {
        "schedule": carry_schedule(tree, jax.get(SCHEDULE), moved, where),
        "loss scaler": carry_scaler(tree, scale, tracker, moved),
    }
    unknown: list[str] = []
    for one in list(branches(tree)):
        name = leaf_name(one.keys)
        if isinstance(one.value, Array) and id(one.value) not in kept:
            continue  # of a model at the top of the tree: it is JAX's
        if one.component == "counters" and one.keys[-1] in STEP_NAMES and _is_count(one.value):
            _count(tree, one, moved, reset, ledger)
        elif one.component in MOVING and (carried.get(one.component) or one.value in (None, {})):
            if how := carried.get(one.component):
                ledger.add(MOVING[one.component], "transformed", name, how)
        elif one.component in MOVES or (one.component in HELD and _has_kept(one.value, kept)):
            asked = one.component in reset or not set(_names(one)).isdisjoint(reset)
            why = f"is {_of(moved)}, and the parameters are of step {moved.step}"
            hint = "" if asked else f"; --reset '{one.component}' keeps it"
            ledger.add(name, "reset" if asked else "refused", name, f"{why}{hint}")
        elif one.component is None or (one.component == "parameters" and _has_kept(one.value, kept)):
            unknown.append(name)
    if unknown:
        more = f" and {len(unknown) - MOST_SHOWN:,} more" if len(unknown) > MOST_SHOWN else ""
        ledger.notes.append(
            f"stays {_of(moved)}, as nothing says whether training changes it: "
            f"{', '.join(unknown[:MOST_SHOWN])}{more}"
        )
    return tree


def _count(tree: Tree, one: StatePart, moved: Moved, reset: Collection[str], ledger: Ledger) -> None:
    """Set a counter of steps to the step of JAX, if it counts the same."""
    name, since = leaf_name(one.keys), moved.recorded
    was_at = number_of(one.value)
    if (since is None and moved.like) or was_at == since:
        ledger.add("step", "copied", name, f"was {was_at}")
        step = InMemory(np.array(moved.step, one.value.dtype)) if isinstance(one.value, Array) else moved.step
        node_at(tree, one.keys[:-1])[one.keys[-1]] = step
    elif moved.step != since:  # a step within an epoch, or how many there are to be
        asked = name in reset
        was = "no step was recorded" if since is None else f"the step was {since}"
        why = f"is {was_at} where {was}: nothing says whether it counts on"
        hint = "" if asked else f"; --reset '{name}' keeps it"
        ledger.add(name, "reset" if asked else "refused", name, f"{why}{hint}")


def _is_count(value: Tree) -> bool:
    """Return whether a value is an integer, Python's own or a tensor of one."""
    return type(value) is int or (isinstance(value, Array) and not value.shape and value.dtype.kind in "iu")


def _names(one: StatePart) -> list[str]:
    """Return the names of a branch and of all around it."""
    return [leaf_name(one.keys[:depth]) for depth in range(1, len(one.keys) + 1)]


def _has_kept(value: Tree, kept: Collection[int]) -> bool:
    return any(isinstance(leaf, Array) and id(leaf) in kept for _, leaf in leaves(value))


def _of(moved: Moved) -> str:
    """Return what the values are of that stay; a checkpoint that is like the tree is of no step of its own."""
    if moved.like:
        return "that of the checkpoint like it"
    return "as it was converted" if moved.recorded is None else f"that of step {moved.recorded}"
