"""How far a training state of PyTorch is: its steps and its schedule, and that its rates are of one position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parity.convert.branches import branches
from parity.convert.components import STEP_NAMES
from parity.convert.ledger import Ledger
from parity.convert.torch_state import OptimizerPart
from parity.errors import CheckpointError
from parity.formats import Key, Tree, leaf_name, number_of

__all__ = ["note_position", "require_one_rate", "schedule_position", "steps_counted"]


def require_one_rate(tree: Tree, optimizer: OptimizerPart) -> None:
    """Check that the schedule and the optimizer have the same learning rate: both are of one position.

    Args:
        tree: The source.
        optimizer: Its optimizer, with the rate of each group.

    Raises:
        CheckpointError: They have not: one was saved before and one after a step.
    """
    rates = _plain([group.get("lr") for group in optimizer.groups])
    for key, one in _schedulers(tree):
        last = one.get("_last_lr")
        if isinstance(last, list) and len(last) == len(rates) and _plain(last) != rates:
            raise CheckpointError(
                f"{leaf_name(key)}: the schedule is at learning rate {_plain(last)}, the optimizer at {rates}: one "
                "was saved before and one after a step, so neither position is the state's; save both at one step"
            )


def _plain(values: Sequence[Any]) -> list[Any]:
    return [number_of(value) for value in values]


def schedule_position(tree: Tree) -> int | None:
    """Return how often the schedule was stepped; None if there is none that counts."""
    found = (one["last_epoch"] for _, one in _schedulers(tree) if type(one.get("last_epoch")) is int)
    return next(found, None)


def _schedulers(tree: Tree) -> Iterator[tuple[tuple[Key, ...], dict[str, Any]]]:
    """Yield what a tree has as schedules, each with its keys."""
    for one in branches(tree):
        if one.component == "schedule" and isinstance(one.value, dict):
            yield one.keys, one.value


def note_position(part: OptimizerPart, counted: int | None, ledger: Ledger) -> None:
    """Say from where a schedule in JAX counts on, where neither a scheduler nor the optimizer tells it.

    Args:
        part: The optimizer.
        counted: Steps that the checkpoint counts; None where it counts none.
        ledger: Takes the note.
    """
    if counted is None:
        why = f"schedules in JAX start at 0: {part.kind.name} counts no updates, and the checkpoint no steps"
    else:
        why = (
            f"schedules in JAX count on from {counted}, the steps that the checkpoint counts, as {part.kind.name} "
            "counts no updates: that each step was one update is inferred"
        )
    ledger.notes.append(why)


def steps_counted(tree: Tree) -> int | None:
    """Return the completed steps by a counter of a customary name.

    A counter that lies deeper counts where all of its name are at one number.
    """
    for name in STEP_NAMES:
        value = number_of(tree.get(name))
        if type(value) is int:
            return int(value)
    deeper = [(str(one.keys[-1]), number_of(one.value)) for one in branches(tree) if one.component == "counters"]
    for name in STEP_NAMES:
        found = {value for key, value in deeper if key == name and type(value) is int}
        if len(found) == 1:
            return int(found.pop())
    return None
