"""How far a training state of PyTorch is: its steps and its schedule, and that its rates are of one position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.convert.branches import branches
from parity.convert.components import STEP_NAMES
from parity.convert.ledger import Ledger
from parity.convert.torch_state import OptimizerPart
from parity.errors import CheckpointError
from parity.formats import Key, Tree, leaf_name, number_of

__all__ = ["note_position", "require_one_rate", "schedule_position", "steps_counted"]


def require_one_rate(tree: Tree, optimizer: OptimizerPart, ledger: Ledger) -> None:
    """Check that the schedule and the optimizer have the same learning rate: both are of one position.

    Of several schedules of one optimizer each has the rate that it left, and only the one that was stepped last has
    that of the optimizer.

    Args:
        tree: The source.
        optimizer: Its optimizer, with the rate of each group.
        ledger: Takes a note where another schedule explains a rate that the optimizer no longer has.

    Raises:
        CheckpointError: No schedule has it: one was saved before and one after a step, or the rate was set otherwise.
    """
    rates = _plain([group.get("lr") for group in optimizer.groups])
    shown = {leaf_name(key): one.get("_last_lr") for key, one in _schedulers(tree)}
    left = {name: _plain(last) for name, last in shown.items() if isinstance(last, list) and len(last) == len(rates)}
    off = [name for name, last in left.items() if last != rates]
    if not off:
        return
    if len(off) < len(left):
        ledger.notes.append(
            f"{', '.join(off)}: at another learning rate than the optimizer, which has that of "
            f"{next(name for name in left if name not in off)}: that this one was stepped after it is inferred"
        )
        return
    name = off[-1]
    tops = {str(key[0]) for key, _ in _schedulers(tree)}
    rest = ",".join(str(key) for key in tree if str(key) not in tops) if isinstance(tree, dict) else ""
    raise CheckpointError(
        f"{name}: the schedule is at learning rate {left[name]}, the optimizer at {rates}: one was saved before and "
        "one after a step, so neither position is the state's, or something else set the rate; save both at one step"
        + (f", or leave the schedule out: --keys {rest}" if rest else "")
    )


def _plain(values: Sequence[Any]) -> list[Any]:
    return [number_of(value) for value in values]


def schedule_position(tree: Tree) -> int | None:
    """Return how often the schedule was stepped; None if there is none that counts."""
    found = (position for _, one in _schedulers(tree) if (position := _position(one)) is not None)
    return next(found, None)


def _position(state: Mapping[str, Any]) -> int | None:
    """Return how often one schedule was stepped; a `ChainedScheduler` counts by its parts, which go in step."""
    own, parts = state.get("last_epoch"), state.get("_schedulers")
    if type(own) is int:
        return own
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        return None
    found = {_position(part) for part in parts}
    return found.pop() if len(found) == 1 else None


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
