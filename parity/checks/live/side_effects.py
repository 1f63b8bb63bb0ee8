"""Side effects: what saves and evaluations did to the state that training continues from."""

from __future__ import annotations

import itertools

from parity.checks.live.evidence import NONE, RANK, Evidence, Ground
from parity.checks.live.trace import Trace
from parity.contract.capture import Leaf, root_of

__all__ = ["judge_effects"]


def judge_effects(trace: Trace, ground: Ground) -> list[Evidence]:
    """Return what statements that save or evaluate did to the state that training continues from.

    Args:
        trace: A run whose effects were watched. A save counts only where files changed before the next mark.
        ground: What equal runs say.

    Returns:
        The evidence, in the order of suspicion.
    """
    found: list[Evidence] = []
    for effect in trace.effects:
        if effect.what == "save" and not _saved_after(effect.step, trace):
            continue  # `checkpoint` may also be the one of activations
        before_it = next((m for m in reversed(trace.marks) if m.step <= effect.step), None)
        changed = {
            p: pair
            for p, pair in effect.changed.items()
            if p not in ground.noise
            and before_it is not None
            and not before_it.snapshot.is_dead(p)
            and root_of(p) in {root_of(one) for one in before_it.snapshot.leaves}  # not made by the statement
        }  # fmt: skip
        leaves = {p: (pair[0] or pair[1]) for p, pair in changed.items()}
        parts = {leaf.component for leaf in leaves.values() if leaf is not None and leaf.role == "state"}
        if effect.what == "evaluation" and any(
            c.startswith("optimizer.") and c.endswith(("moment", "momentum", "step")) for c in parts
        ):
            continue  # it trains
        for path, leaf in leaves.items():
            if leaf is None or path in effect.rounded:
                continue  # swapped for other weights and put back by arithmetic
            if not _counts(effect.what, path, leaf, trace, effect.step, ground):
                continue
            before, after = changed[path]
            when = f"across the {effect.what}, {effect.where}"
            found.append(
                Evidence(
                    leaf.component,
                    path,
                    effect.step,
                    before.text if before else "absent",
                    after.text if after else "absent",
                    when,
                )
            )
    order = {p: i for i, p in enumerate(RANK)}
    return sorted(found, key=lambda e: min((i for p, i in order.items() if e.component.startswith(p)), default=99))


def _saved_after(step: int, trace: Trace) -> bool:
    """Return whether files changed between the mark at a step and the next one."""
    following = next((mark for mark in trace.marks if mark.step > step), None)
    return following is not None and bool(following.saved)


def _counts(what: str, path: str, leaf: Leaf, trace: Trace, step: int, ground: Ground) -> bool:
    if leaf.role == "stream":
        return path in ground.streams and _drawn_elsewhere(path, trace)
    if leaf.component in ("model.mode", "model.requires_grad"):
        following = next((m for m in trace.marks if m.step > step), None)
        before = next((m for m in reversed(trace.marks) if m.step <= step), None)
        return (
            following is not None
            and before is not None
            and not before.snapshot.leaves.get(path, NONE).same(following.snapshot.leaves.get(path))
        )
    if leaf.role == "flag":
        return True
    if leaf.role != "state":
        return False
    if what == "save":
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
