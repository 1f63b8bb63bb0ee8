"""Put back: values that an evaluation exchanges and a later step restores, which is no difference in training."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["put_back_later"]


def put_back_later(parted: Sequence[Collection[str]]) -> set[int]:
    """Return the marks at which runs differ in what later steps wrote before they read it.

    Weights that an evaluation exchanges, and that the next step puts back when it begins: two runs that evaluate at
    other steps differ at such marks, and are equal again, bit for bit. What a step had trained with would not be. At
    the end nothing can tell; what was put back before, after as many marks, counts as such there.

    Args:
        parted: Paths of what is trained that differ, at each mark.
    """
    found: set[int] = set()
    known: set[str] = set()
    longest, begin = 0, None
    for at, paths in enumerate([*parted, ()]):
        if paths:
            begin = at if begin is None else begin
            continue
        if begin is not None:
            stretch = range(begin, at)
            here = {path for index in stretch for path in parted[index]}
            if at < len(parted) or (known >= here and len(stretch) <= longest):
                found |= {*stretch}
                known, longest = known | here, max(longest, len(stretch))
        begin = None
    return found
