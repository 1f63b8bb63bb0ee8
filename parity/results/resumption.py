"""Resumption: the verdict of a resume check on any trainer, with the evidence for every suspect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parity.contract import Precision
from parity.results.record import CheckRecord, Curves, Verdict
from parity.results.suspects import Suspect, clipped, components_of, describe_effect, record_of, suspect_lines

__all__ = ["Resumption"]


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """What a resume check found on a training function."""

    name: str
    verdict: Verdict
    mode: str
    """`process` or `inline`."""
    steps: int
    stop_at: int
    suspects: tuple[Suspect, ...] = ()
    """The likeliest first; empty unless the verdict is `broken`."""
    bookkeeping: tuple[Suspect, ...] = ()
    """Values that differ and reach neither training nor a save nor a decision."""
    observations: tuple[Suspect, ...] = ()
    """What statements of a single run changed that seem to save or evaluate: worth a look, no verdict."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Path to the type of what the check could not look into."""
    moving: tuple[str, ...] = ()
    """Paths in `unseen` of what changes while the run goes, or could not even be probed."""
    scenarios: tuple[str, ...] = ()
    """Ways of stopping and resuming that were tried."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Scenarios that the function cannot be driven in, with the reason."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Paths or components that were not judged, as the caller asked, to the reason."""
    notes: tuple[str, ...] = ()
    compared: int = 0
    """Marks at which two states were compared."""
    leaves: int = 0
    """Leaves seen at a mark."""
    changed: int = 0
    """Floating leaves that training changed."""
    frameworks: tuple[str, ...] = ()
    precision: Precision = "float32"
    """Narrowest type of the parameters that were trained, as far as the check saw any."""
    seconds: float = 0.0
    equal_runs: int = 0
    """Equal runs whose envelope judged the numbers that rounding moves; 0 where every bit was compared."""
    multiple: float | None = None
    """Largest deviation of a resumed run as a multiple of that envelope; None where every bit was compared."""
    limit: float | None = None
    """Largest multiple that passes."""
    curves: Curves | None = None
    """The loss of the uninterrupted run and of a resumed one, where the loop keeps it in a variable of that name."""

    @property
    def roads(self) -> tuple[str, ...]:
        """The former name of `scenarios`."""
        return self.scenarios

    @property
    def components(self) -> tuple[str, ...]:
        """Return the components of the suspects, each once, the likeliest first."""
        return components_of(self.suspects)

    def record(self) -> CheckRecord:
        """Return the record for reports and result files."""
        return record_of(
            self,
            "resume",
            self.frameworks or ("python",),
            "envelope" if self.equal_runs else "bitwise",
            scenarios=True,
            envelope_multiple=self.multiple,
            curves=self.curves,
        )

    def text(self, most: int = 25) -> str:
        """Return the verdict in at most so many lines: verdict, first difference, suspects, advice."""
        driven = ", ".join(self.scenarios)
        what = f"{self.name}: {self.steps} steps, killed at {self.stop_at}, {self.mode}, scenarios {driven}"
        words = "resumes within the envelope" if self.equal_runs and self.verdict == "holds" else _WORDS[self.verdict]
        lines = [f"{words}: {what}{self._beside()}"]
        lines += suspect_lines("lost", self.suspects, scenarios=True)
        if self.equal_runs and self.multiple is not None:
            lines.append(
                f"judged by the envelope of {self.equal_runs} equal runs, which part by rounding: at most "
                f"{self.multiple:.2g} times it, {self.limit:g} passes; all else bit for bit"
            )
        lines += [f"note: {note}" for note in self.notes[:4]]
        if self.observations and self.verdict != "broken":
            lines.append(clipped(f"observed, in one run: {describe_effect(self.observations[0])}"))
        if self.bookkeeping:
            names = ", ".join(dict.fromkeys(one.path for one in self.bookkeeping))
            lines.append(clipped(f"bookkeeping that differs: {names}"))
        lines += [clipped(f"not judged: {path} ({reason})") for path, reason in list(self.ignored.items())[:4]]
        if self.unseen:
            shown = sorted(self.unseen, key=lambda path: path not in self.moving)
            lines.append(
                clipped(f"not seen: {', '.join(f'{p} (changes)' if p in self.moving else p for p in shown)}")
            )
        if self.closed:
            lines.append(
                clipped(f"not driven: {'; '.join(f'{scenario} ({why})' for scenario, why in self.closed.items())}")
            )
        return "\n".join("\n".join(lines).splitlines()[:most])

    def _beside(self) -> str:
        """Return what a reader of the first line alone has to know of what was not proven equal."""
        if self.verdict != "holds":
            return ""
        count = len({one.path for one in self.bookkeeping})
        parts = [f"{count} {'values differ' if count > 1 else 'value differs'} (bookkeeping)"] if count else []
        if self.unseen:
            parts.append(
                f"{len(self.unseen)} not seen" + (f", {len(self.moving)} of it changing" if self.moving else "")
            )
        return f"; {', '.join(parts)}" if parts else ""


_WORDS: Mapping[Verdict, str] = {
    "holds": "resumes exactly",
    "broken": "resume is broken",
    "crashed": "crashed",
    "inconclusive": "inconclusive",
    "empty": "nothing was compared",
}
