"""Side effects: what saves and evaluations did to the state that training continues from.

Where the loop declares a region, what it changed is a loss. Of any other statement that seems to save or evaluate, by
the names of what it calls, the same is only an observation: a step may train under `no_grad`, and what a single run
shows is confirmed by a second one that saves and evaluates at other steps (the scenario `intervals`), or by nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from parity.capture import HARD, Leaf, root_of
from parity.checks.judging.evidence import NONE, RANK, Evidence, Uninterrupted, text_of
from parity.checks.running import Effect, Mark, Trace

__all__ = ["judge_declared", "observe_effects"]


def judge_declared(trace: Trace, uninterrupted: Uninterrupted) -> list[Evidence]:
    """Return what regions that the loop declares changed of the state that training continues from.

    Args:
        trace: A run whose effects were watched.
        uninterrupted: What equal runs say.

    Returns:
        The evidence, in the order of suspicion.
    """
    found = [item for effect in trace.effects if effect.declared for item in _of_region(effect, trace, uninterrupted)]
    return sorted(found, key=_rank)


def _of_region(effect: Effect, trace: Trace, uninterrupted: Uninterrupted) -> Iterator[Evidence]:
    before, _ = _marks_around(effect.step, trace)
    for path, (old, new) in effect.changed.items():
        leaf = old or new
        if leaf is None or path in uninterrupted.noise or before is None or before.snapshot.is_dead(path):
            continue
        if effect.what == "evaluation" and leaf.component.startswith("schedule"):
            continue  # a plateau's schedule follows the evaluations by design
        trains = (
            path in uninterrupted.streams
            if leaf.role == "stream"
            else leaf.role in HARD or path in uninterrupted.stepwise
        )
        if trains:
            when = f"across the {effect.what}, {effect.where}"
            yield Evidence(leaf.component, path, effect.step, text_of(old), text_of(new), when)


def observe_effects(trace: Trace, uninterrupted: Uninterrupted) -> list[Evidence]:
    """Return what statements that seem to save or evaluate changed: worth a look, and no verdict.

    Args:
        trace: A run whose effects were watched. A save is listed only where files changed before the next mark.
        uninterrupted: What equal runs say.

    Returns:
        What was seen, in the order of suspicion.
    """
    found: list[Evidence] = []
    for effect in trace.effects:
        before, after = _marks_around(effect.step, trace)
        if effect.declared or before is None or (effect.what == "save" and not (after is not None and after.saved)):
            continue  # `checkpoint` may also be the one of activations
        known = {root_of(path) for path in before.snapshot.leaves}  # the others are made by the statement
        leaves = {
            path: old or new
            for path, (old, new) in effect.changed.items()
            if path not in uninterrupted.noise and not before.snapshot.is_dead(path) and root_of(path) in known
        }
        parts = {leaf.component for leaf in leaves.values() if leaf is not None and leaf.role == "state"}
        if effect.what == "evaluation" and any(
            c.startswith("optimizer.") and c.endswith(("moment", "momentum", "step")) for c in parts
        ):
            continue  # it trains
        when = f"across the {effect.what}, {effect.where}"
        for path, leaf in leaves.items():
            if leaf is None or path in effect.rounded:
                continue  # swapped for other weights and put back by arithmetic
            if _counts(effect, path, leaf, trace, uninterrupted):
                expected, got = map(text_of, effect.changed[path])
                found.append(Evidence(leaf.component, path, effect.step, expected, got, when))
    return sorted(found, key=_rank)


def _rank(evidence: Evidence) -> int:
    """Return the place of a component in the order of suspicion."""
    return next((at for at, prefix in enumerate(RANK) if evidence.component.startswith(prefix)), len(RANK))


def _marks_around(step: int, trace: Trace) -> tuple[Mark | None, Mark | None]:
    """Return the last mark up to a step, and the first one after it."""
    before = next((mark for mark in reversed(trace.marks) if mark.step <= step), None)
    return before, next((mark for mark in trace.marks if mark.step > step), None)


def _counts(effect: Effect, path: str, leaf: Leaf, trace: Trace, uninterrupted: Uninterrupted) -> bool:
    if leaf.role == "stream":
        return path in uninterrupted.streams and _drawn_elsewhere(path, trace)
    if leaf.component in ("model.mode", "model.requires_grad"):
        before, after = _marks_around(effect.step, trace)
        if before is None or after is None:
            return False
        return not before.snapshot.leaves.get(path, NONE).same(after.snapshot.leaves.get(path))
    if leaf.role == "flag":
        return True
    if leaf.role != "state":
        return False
    if effect.what == "save":
        return not leaf.component.startswith(("schedule", "ema"))
    return leaf.component in ("model.buffers", "model.params")


def _drawn_elsewhere(path: str, trace: Trace) -> bool:
    """Return whether a generator also moves in steps in which no watched statement moved it."""
    moved = {effect.step for effect in trace.effects if path in effect.changed}
    for before, after in itertools.pairwise(trace.marks):
        a, b = before.snapshot.leaves.get(path), after.snapshot.leaves.get(path)
        if a is not None and not a.same(b) and before.step not in moved and before.step <= max(moved, default=0):
            return True
    return False
