"""Equal parts of a batch, as an accumulation takes them: one after the other, or each of every so manyth row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["BatchParts", "ways_of"]


@dataclass(frozen=True)
class BatchParts:
    """A way to take a batch in parts."""

    count: int
    strided: bool = False
    """Whether a part is every so manyth row, as `x[part::count]` takes them."""

    def of(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the parts of a batch; what is no array of rows is in each of them.

        Args:
            batch: Whose arrays have one length.
        """
        found = []
        for at in range(self.count):
            part = {}
            for name, one in batch.items():
                size = len(one) // self.count if isinstance(one, np.ndarray) and one.ndim else 0
                rows = one[at :: self.count] if self.strided and size else one
                part[name] = rows if self.strided or not size else one[at * size : (at + 1) * size]
            found.append(part)
        return found

    @property
    def words(self) -> str:
        """Return it in words."""
        return f"{self.count} parts of the batch" + (f" (every {_ordinal(self.count)} row)" if self.strided else "")


def ways_of(batch: Mapping[str, Any], counts: Sequence[int]) -> Iterator[BatchParts]:
    """Yield the ways to take a batch in parts, for each count those first that lie one after the other.

    Args:
        batch: Whose rows are taken; of arrays of several lengths there is no way.
        counts: Of parts that are tried.
    """
    lengths = {len(one) for one in batch.values() if isinstance(one, np.ndarray) and one.ndim}
    if len(lengths) != 1:
        return
    rows = lengths.pop()
    for count in dict.fromkeys(counts):
        if 2 <= count <= rows and rows % count == 0:
            yield BatchParts(count)
            if count < rows:  # single rows are the same parts
                yield BatchParts(count, strided=True)


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
