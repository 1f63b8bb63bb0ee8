"""What is renewed right after every save needs none: a factor of a matrix, a target network, a list of neighbours.

`if factor is None or step % 4 == 0: factor = renew()` with saves every fourth step: a resumed run has no factor, but
its first step makes the one that the uninterrupted run makes there too. A best value or a flag is renewed when things
turn out so; this is renewed after so many steps, at every save among others, and kept over the steps between.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from parity.checks.running import Mark

__all__ = ["is_renewed_after_saves"]

RENEWALS = 3
"""Fewest that show a period."""
SAVES = 2
"""Fewest that show that all of them come before a renewal."""


def is_renewed_after_saves(path: str, marks: Sequence[Mark], saves: Collection[int]) -> bool:
    """Return whether a value changes in every so many steps alone, and in each that follows a save.

    Args:
        path: Path of the value.
        marks: Marks of the uninterrupted run.
        saves: The marks before which it saved, counted from 0.
    """
    series = [mark.snapshot.leaves.get(path) for mark in marks]
    renewed = {at for at, (old, new) in enumerate(itertools.pairwise(series)) if old != new}
    apart = {after - before for before, after in itertools.pairwise(sorted(renewed))}
    periodic = len(renewed) >= RENEWALS and len(apart) == 1 and apart != {1}
    followed = {at for at in saves if at < len(marks) - 1}
    return periodic and len(followed) >= SAVES and followed <= renewed
