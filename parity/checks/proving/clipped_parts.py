"""A norm of some leaves alone by which all gradients are clipped: which leaves it is of.

Where one run clips the norm of all gradients to a limit, another that counts a part of them clips to the same limit,
and its gradients are scaled less. That its scale is the limit over the norm of those leaves shows at two updates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from parity.checks.proving.slots import LeafArrays, names_of

__all__ = ["counted_leaves"]

CLOSE = 1e-5
"""Relative distance of two norms that are one: up to 1e-6 is added to a norm of gradients."""

MOST_LEAVES = 12
"""Leaves of which every choice is tried; of more those alone that their names or axes tell apart."""


def counted_leaves(updates: Sequence[tuple[LeafArrays, float]], limit: float) -> str:
    """Return of which leaves a norm is that clips gradients to a limit, in words; empty where no one choice is told.

    Args:
        updates: At least two: the gradients of all leaves, and by how much all are scaled.
        limit: That norms are clipped to.
    """
    leaves = list(updates[0][0])
    wanted = [limit / scale for _, scale in updates]
    if len(updates) < 2 or limit <= 0.0 or len({float(f"{one:.4g}") for one in wanted}) < 2:
        return ""
    squares = [np.array([float((grads[leaf] ** 2).sum()) for leaf in leaves]) for grads, _ in updates]
    for words, chosen in _by_name(updates[0][0]):
        if _makes(squares, np.isin(leaves, sorted(chosen)), wanted):
            return f"{words} ({len(chosen)} of {len(leaves)} leaves)"
    found = []
    for count in range(1, len(leaves)) if len(leaves) <= MOST_LEAVES else ():
        for some in itertools.combinations(range(len(leaves)), count):
            if _makes(squares, np.isin(np.arange(len(leaves)), some), wanted):
                found.append([leaves[at] for at in some])
    if len(found) != 1:
        return ""
    return f"{names_of(found[0])} ({len(found[0])} of {len(leaves)} leaves)"


def _makes(squares: Sequence[np.ndarray], chosen: np.ndarray, wanted: Sequence[float]) -> bool:
    norms = [float(np.sqrt(each[chosen].sum())) for each in squares]
    return all(abs(norm - other) <= CLOSE * other for norm, other in zip(norms, wanted, strict=True))


def _by_name(grads: Mapping[str, np.ndarray]) -> Iterator[tuple[str, set[str]]]:
    """Yield leaves that have a part of their name, or their number of axes, and all others; the plainest first."""
    kinds: dict[str, set[str]] = {}
    for leaf, one in grads.items():
        parts = leaf.split(".")
        for count in range(1, len(parts)):
            kinds.setdefault(f"the leaves of {'.'.join(parts[:count])}", set()).add(leaf)
        kinds.setdefault(f"the leaves {parts[-1]}", set()).add(leaf)
        kinds.setdefault("matrices and kernels" if one.ndim > 1 else "leaves of one axis", set()).add(leaf)
    for words, chosen in kinds.items():
        if len(chosen) < len(grads):
            yield words, chosen
    for words, chosen in kinds.items():
        if len(chosen) < len(grads):
            yield f"all but {words}", set(grads) - chosen
