"""The comparison of two results of checks: which verdicts changed, which checks are new or gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from parity.results.record import VERDICTS, CheckRecord, Verdict

__all__ = ["VerdictChange", "compare_records", "compare_verdicts"]

RecordKey = tuple[str, str, str, tuple[str, ...], int]
"""Name, spec, precision, sides, and the number among checks that share them."""


@dataclass(frozen=True, kw_only=True)
class VerdictChange:
    """One check in two results."""

    name: str
    spec: str
    precision: str
    sides: tuple[str, ...]
    old: Verdict | None
    """None if only the new result has it."""
    new: Verdict | None
    """None if only the old result has it."""

    @property
    def kind(self) -> str:
        """Return `same`, `better`, `worse`, `new` or `gone`."""
        if self.old is None or self.new is None:
            return "new" if self.old is None else "gone"
        if self.old == self.new:
            return "same"
        return "worse" if VERDICTS.index(self.new) < VERDICTS.index(self.old) else "better"


def compare_records(old: Iterable[CheckRecord], new: Iterable[CheckRecord]) -> tuple[VerdictChange, ...]:
    """Return what became of every check, those of the old result first.

    Args:
        old: The checks of one result.
        new: Those of another; a check is the same by name, spec, precision, sides, and its place among those alike.
    """
    before, after = _keyed(old), _keyed(new)
    return tuple(
        VerdictChange(
            name=key[0],
            spec=key[1],
            precision=key[2],
            sides=key[3],
            old=before[key].verdict if key in before else None,
            new=after[key].verdict if key in after else None,
        )
        for key in {**before, **after}
    )


def compare_verdicts(changes: Iterable[VerdictChange]) -> Verdict:
    """Return the verdict of a comparison.

    `broken` if a verdict got worse, or a new check does not hold; `inconclusive` if a check is gone, for it may have
    got worse; `empty` if the results share no check.

    Example:
        >>> old = CheckRecord.of("resume", "mlp-digits", "float32", ("jax",), "holds")
        >>> new = CheckRecord.of("resume", "mlp-digits", "float32", ("jax",), "broken")
        >>> compare_verdicts(compare_records([old], [old])), compare_verdicts(compare_records([old], [new]))
        ('holds', 'broken')
    """
    changes = tuple(changes)
    if any(c.kind == "worse" or (c.kind == "new" and c.new != "holds") for c in changes):
        return "broken"
    if not any(c.old is not None and c.new is not None for c in changes):
        return "empty"
    return "inconclusive" if any(c.kind == "gone" for c in changes) else "holds"


def _keyed(records: Iterable[CheckRecord]) -> dict[RecordKey, CheckRecord]:
    out: dict[RecordKey, CheckRecord] = {}
    seen: Counter[tuple[str, str, str, tuple[str, ...]]] = Counter()
    for record in records:
        short = (record.name, record.spec, record.precision, record.sides)
        out[*short, seen[short]] = record
        seen[short] += 1
    return out
