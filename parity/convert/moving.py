"""What moves on while JAX trains, besides the optimizer: the schedule and the loss scale, as leaves of the tree.

`schedule` is the JSON of `parity.schedules.Schedule`, `loss_scale` the two numbers of `jax_side.ScalerState`. A
trainer that keeps them up to date gets them back into PyTorch's state; a schedule that Optax counts is moved on by
that count. What nobody kept up to date is not taken over: it would be a value of another step.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.convert.branches import branches, is_optimizer, node_at
from parity.convert.components import SCALER
from parity.convert.ledger import Ledger
from parity.convert.scheduler_dict import read_scheduler, write_groups, write_scheduler
from parity.errors import CheckpointError, ParityError
from parity.formats import InMemory, Tree, leaf_name, number_of
from parity.schedules import Schedule

__all__ = [
    "LOSS_SCALE",
    "MOVING",
    "SCHEDULE",
    "Moved",
    "carry_scaler",
    "carry_schedule",
    "moving_leaves",
    "note_unmoving",
]

SCHEDULE = "schedule"
"""Key of the JAX tree."""

LOSS_SCALE = "loss_scale"
"""Key of the JAX tree."""

MOVING = {"schedule": SCHEDULE, "loss scaler": LOSS_SCALE}
"""Component to its key in the JAX tree."""

MOST_STEPS = 10_000_000
"""Steps by which a schedule is moved on; each is computed from the one before."""

Put = Callable[[Any], Tree]


@dataclass(frozen=True)
class Moved:
    """How far a tree of JAX is from the state of PyTorch that it was converted from."""

    recorded: int | None
    """Steps of that state; None if it does not say."""
    step: int
    """Steps of the tree."""
    counted: tuple[int, int] | None
    """Optax's count for the schedule, then and now; None if there is none."""
    like: bool = False
    """Whether that state is another one of the same model, given for its names and groups."""


def moving_leaves(tree: Tree) -> dict[str, Any]:
    """Return the leaves of a training state of PyTorch that move on in JAX, by their keys; none that is not there."""
    found: dict[str, Any] = {}
    if not isinstance(tree, dict):
        return found
    schedule = _schedule(tree)
    if schedule is not None:
        found[SCHEDULE] = json.dumps(schedule[0].state())
    scaler = _find(tree, "loss scaler", _is_scaler)
    if scaler is not None:
        state, _ = scaler
        found[LOSS_SCALE] = {
            "scale": InMemory(np.array(state["scale"], np.float32)),
            "growth_tracker": InMemory(np.array(state["_growth_tracker"], np.int32)),
        }
    return found


def note_unmoving(tree: Tree, moving: Mapping[str, Any], ledger: Ledger) -> None:
    """Say which schedule or loss scale JAX gets nothing of, though PyTorch's state has one.

    Args:
        tree: PyTorch's.
        moving: What `moving_leaves` found in it.
        ledger: Takes a note for each.
    """
    for component, key in MOVING.items():
        held = [leaf_name(one.keys) for one in branches(tree) if one.component == component and one.value]
        if held and key not in moving:
            one = "its state does not say all of it, such as a function, or is of no class that is known"
            why = "there are several" if len(held) > 1 else one
            ledger.notes.append(
                f"JAX gets no {key} from {', '.join(held[:4])}, which is kept in the document alone: {why}"
            )


def carry_schedule(tree: dict[str, Any], text: Any, moved: Moved, where: str) -> str | None:
    """Put the schedule of a tree of JAX, and the learning rates, into a tree of PyTorch.

    Args:
        tree: PyTorch's, as it was; changed in place.
        text: The leaf `schedule`; None if the tree has none.
        moved: How far the tree of JAX is.
        where: The checkpoint, for messages.

    Returns:
        How it was moved on; None if nothing says where the schedule is now.

    Raises:
        CheckpointError: The leaf is no schedule, of another rule, or at another position than Optax's count.
    """
    found = _schedule(tree)
    if found is None:
        return None
    schedule, scheduler, put, optimizer = found
    kept = schedule.state()
    given = _restored(text, where) if text is not None else None
    if given is not None and given.state()["rule"] != kept["rule"]:
        raise CheckpointError(f"{where}: {SCHEDULE} is of another rule than the schedule of PyTorch's state")
    if given is not None and given.state() != kept:
        at, (before, now) = given.position.epoch, moved.counted or (0, 0)
        if before != now and at != now and "last_epoch" in scheduler:
            raise CheckpointError(f"{where}: {SCHEDULE} is at {at}, and Optax counts {now}: set both")
        schedule, how = given, f"of the leaf {SCHEDULE}"
    else:
        if moved.counted is None or moved.counted[0] == moved.counted[1] or schedule.rule.metric:
            return None
        before, now = moved.counted
        if not before <= now <= before + MOST_STEPS or before != moved.recorded or not schedule.whole:
            return None  # not stepped once a step, so that updates do not tell where it is
        schedule.take(now - before)
        how = f"moved on from step {before} to {now} by Optax's count"
    put(write_scheduler(scheduler, schedule.position))
    optimizer["param_groups"] = write_groups(optimizer["param_groups"], schedule.groups)
    return how


def carry_scaler(tree: dict[str, Any], scale: Any, tracker: Any, moved: Moved) -> str | None:
    """Put the loss scale of a tree of JAX into a tree of PyTorch.

    Args:
        tree: PyTorch's, as it was; changed in place.
        scale: The leaf `loss_scale.scale`.
        tracker: The leaf `loss_scale.growth_tracker`.
        moved: How far the tree of JAX is.

    Returns:
        How; None if there is no such leaf, or it was not kept up to date.
    """
    found = _find(tree, "loss scaler", _is_scaler)
    now = number_of(scale), number_of(tracker)
    if found is None or not isinstance(now[0], int | float) or type(now[1]) is not int:
        return None
    state, put = found
    same = now == (state["scale"], state["_growth_tracker"])
    if same and (moved.recorded is None or (moved.step - moved.recorded) % state["growth_interval"]):
        return None
    put({**state, "scale": float(now[0]), "_growth_tracker": now[1]})
    return f"of the leaf {LOSS_SCALE}"


def _schedule(tree: Mapping[str, Any]) -> tuple[Schedule, Mapping[str, Any], Put, dict[str, Any]] | None:
    """Return the schedule, its dict, how to put another one there, and the optimizer; None if any is not known."""
    optimizer = _find(tree, "optimizer", is_optimizer)
    scheduler = _find(tree, "schedule", lambda one: "_last_lr" in one)
    if optimizer is None or scheduler is None or not isinstance(optimizer[0]["param_groups"], list):
        return None
    read = read_scheduler(scheduler[0], optimizer[0]["param_groups"])
    return None if read is None else (read, *scheduler, optimizer[0])


def _find(
    tree: Mapping[Any, Any], component: str, is_one: Callable[[Any], bool]
) -> tuple[dict[str, Any], Put] | None:
    """Return the dict of a component and how to replace it; None if there is none, or more of that component.

    What stands beside it, such as a second scheduler, would stay as it was and pass for moved on.
    """
    found: list[tuple[Any, Put]] = []
    for one in branches(tree):
        if one.component == component:
            found.append((one.value, functools.partial(node_at(tree, one.keys[:-1]).__setitem__, one.keys[-1])))
    fits = len(found) == 1 and isinstance(found[0][0], dict) and is_one(found[0][0])
    return found[0] if fits else None


def _is_scaler(one: Mapping[str, Any]) -> bool:
    """Return whether a dict is of `torch.amp.GradScaler`, its scale one that float32 holds."""
    numbers = [one.get(name) for name in SCALER]
    if set(one) != SCALER or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        return False
    return float(np.float32(one["scale"])) == one["scale"] and type(one["_growth_tracker"]) is int


def _restored(text: Any, where: str) -> Schedule:
    try:
        return Schedule.restore(json.loads(text))
    except (TypeError, ValueError, RecursionError, ParityError) as error:
        raise CheckpointError(f"{where}: {SCHEDULE} is no schedule: {error}") from error
