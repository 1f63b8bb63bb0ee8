"""Crossing: the verdict of a check across two trainers: a trainer and its port, or a run that is handed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parity.contract import Precision
from parity.results.record import CheckRecord, Criterion, Verdict
from parity.results.suspects import Suspect, clipped, components_of, record_of, suspect_lines

__all__ = ["Crossing"]


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """What a check across two trainers found."""

    check: Literal["twins", "handover"]
    name: str
    verdict: Verdict
    steps: int
    sides: tuple[str, str]
    """What the two trainers are called, the reference first."""
    precision: Precision
    """The narrowest type of the parameters, or what the caller said: decides the criterion."""
    suspects: tuple[Suspect, ...] = ()
    """The likeliest cause first; empty unless the verdict is `broken`."""
    pairs: int = 0
    """Arrays that were paired."""
    unpaired: tuple[str, ...] = ()
    """Arrays of either side that have no counterpart."""
    compared: int = 0
    """Steps at which both were compared."""
    max_abs: float | None = None
    """Largest difference of the loss; None where no loss was seen."""
    max_rel: float | None = None
    multiple: float | None = None
    """Smallest multiple of the measured envelope that would have passed; None in float64."""
    arrays: float | None = None
    """Largest difference of an array as a share of what passes, of those that passed; None where none was judged."""
    handovers: tuple[int, ...] = ()
    """Completed steps at which the run changed sides."""
    notes: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def components(self) -> tuple[str, ...]:
        """Return the components of the suspects, each once, the likeliest first."""
        return components_of(self.suspects)

    @property
    def leaves(self) -> int:
        """Return the number of arrays that were compared."""
        return self.pairs

    @property
    def criterion(self) -> Criterion:
        """Return the criterion of the precision."""
        return "float64" if self.precision == "float64" else "envelope"

    def record(self) -> CheckRecord:
        """Return the record for reports and result files."""
        return record_of(
            self,
            self.check,
            self.sides,
            self.criterion,
            max_abs_diff=self.max_abs,
            max_rel_diff=self.max_rel,
            envelope_multiple=self.multiple,
        )

    def text(self, most: int = 25) -> str:
        """Return the verdict in at most so many lines: verdict, first difference, suspects, advice."""
        between = f"{self.sides[0]} and {self.sides[1]}"
        at = f", handed over at {', '.join(map(str, self.handovers))}" if self.handovers else ""
        what = f"{self.name}: {between}, {self.steps} steps, {self.pairs} arrays, {self.precision}{at}"
        lines = [f"{_WORDS[self.check, self.verdict]}: {what}"]
        lines += suspect_lines("differs", self.suspects)
        if self.max_rel is not None and self.compared:
            lines.append(f"loss: largest relative difference {self.max_rel:.2e} over {self.compared} steps")
        if self.verdict == "holds" and self.arrays is not None:
            lines.append(f"arrays: largest difference {self.arrays:.2g} of what passes")
        lines += [f"note: {note}" for note in self.notes[:6]]
        if self.unpaired:
            lines.append(clipped(f"without a counterpart: {', '.join(self.unpaired)}"))
        return "\n".join("\n".join(lines).splitlines()[:most])


_WORDS = {
    ("twins", "holds"): "the two train alike",
    ("twins", "broken"): "the two do not train alike",
    ("handover", "holds"): "the run is handed over exactly",
    ("handover", "broken"): "the handover is broken",
    **{(check, verdict): verdict for check in ("twins", "handover") for verdict in ("crashed", "inconclusive")},
    **{(check, "empty"): "nothing was compared" for check in ("twins", "handover")},
}
