"""What differs at a resume and is equal again some steps later: orders suspects."""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.judging.evidence import TwoStates, Uninterrupted

__all__ = ["is_cleared_next", "is_kept_loss", "is_without_effect"]


def is_without_effect(path: str, found: Sequence[Sequence[str]], uninterrupted: Uninterrupted) -> bool:
    """Return whether what differs at the resume is equal again before any other path came to differ.

    As the rate that a step puts into a table of figures: what goes on to differ is the cause of what follows.

    Args:
        path: A path that differs at the resume.
        found: Paths that differ at each mark from the resume on, up to the first that shows another training.
        uninterrupted: What equal runs say.
    """
    first, here = set(found[0]), {path, f"{path}.len"}
    held = tuple(f"{p.removesuffix('.len')}[" for p in first if p.endswith(".len"))
    for differ in found[1:]:
        if any(p not in first and not p.startswith(held) and not uninterrupted.is_history(p) for p in differ):
            return False
        if not here.intersection(differ):
            return True
    return False


def is_kept_loss(path: str, both: TwoStates, equal: Sequence[Sequence[str]]) -> bool:
    """Return whether a loss still differs after steps that were equal: a mean of several, none of one step.

    Args:
        path: A path that differs at the resume.
        both: What the uninterrupted run and the resumed one hold there.
        equal: Paths that differ at each later mark before the first that shows another training.
    """
    leaf = both.left.leaves.get(path)
    if leaf is None or leaf.component != "loss" or leaf.role not in ("scalar", "array"):
        return False
    return bool(equal) and all(path in differ for differ in equal)


def is_cleared_next(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a gradient is none in the uninterrupted run one step later, or zeros that come again.

    Args:
        path: A path that differs at the resume.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    leaves = [both.left.leaves.get(path) for both in states]
    if len(leaves) < 2 or leaves[0] is None or leaves[0].role != "gradient" or leaves[0] in leaves[1:]:
        return False
    return leaves[1] is None or leaves[1] in leaves[2:]
