"""Terms that weigh otherwise: each as much as the others, or each of the places that they are means over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from parity.checks.programs.edits import OperationChange
from parity.contract import OperationEdit, ProgramOperation

__all__ = ["weighed"]

LARGEST = 64
"""Terms above which none are looked at."""


def weighed(operations: Sequence[ProgramOperation], line: Sequence[int]) -> Iterator[tuple[int, OperationChange]]:
    """Yield the terms of a sum, means over numbers of places that are not the same, with a weight for each place.

    Args:
        operations: Of a program.
        line: Places of those that one line of it asks for.

    Means of several losses that are added weigh a place of the shorter one more than one of the longer; the sum of
    all places divided by their count weighs them alike, and so it is the other way round.
    """
    kinds: dict[str, list[int]] = defaultdict(list)
    for at in line:
        one = operations[at]
        if len(one.outputs) == 1 and one.outputs[0].size == 1 and one.outputs[0].dtype.kind == "f":
            kinds[one.kind].append(at)
    for kind, terms in kinds.items():
        counts = [max((x.size for x in operations[at].inputs if x.dtype.kind == "f"), default=0) for at in terms]
        if not 2 <= len(terms) <= LARGEST or len(set(counts)) < 2 or min(counts) < 2:
            continue
        mean = sum(counts) / len(counts)
        for own, other, shares in (
            ("each term weighs alike", "each place of all terms weighs alike", [n / mean for n in counts]),
            ("each place of all terms weighs alike", "each term weighs alike", [mean / n for n in counts]),
        ):
            edits = {at: _times(share) for at, share in zip(terms, shares, strict=True)}
            first = edits.pop(terms[0])
            words = f"{own} ({len(terms)} of {kind}, over {', '.join(map(str, counts[:4]))} numbers)"
            yield terms[0], OperationChange("weights", words, other, 1, first, edits, whole=True)


def _times(share: float) -> OperationEdit:
    return OperationEdit(after=lambda outputs, inputs, sources: (outputs[0] * share,))
