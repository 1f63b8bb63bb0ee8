"""Two results compared on a terminal: checks by their verdicts, benchmarks by their ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.text import Text

from parity.report.terminal import open_console, open_table
from parity.report.words import clean
from parity.results import Comparison, Ratio, Verdict, VerdictChange

__all__ = ["print_changes", "print_ratios"]

WORDS: dict[Verdict, str] = {
    "holds": "no verdict got worse",
    "broken": "a verdict got worse, or a new check does not hold",
    "crashed": "a verdict got worse",
    "inconclusive": "a check of the old result is gone: it may have got worse",
    "empty": "nothing compared: the two results share no check",
}

_OF_CHECKS = {"worse": "bold red", "better": "green", "gone": "yellow"}
_OF_RATIOS = {"worse": "bold red", "better": "green", "unjudged": "yellow"}


def print_changes(changes: Sequence[VerdictChange], verdict: Verdict, file: IO[str]) -> None:
    """Print a row for each check that changed, then how many did not; NO_COLOR is honoured."""
    console, table = open_console(file), open_table()
    changed = [change for change in changes if change.kind != "same"]
    for name in ("check", "spec", "precision", "sides", "old", "new", ""):
        table.add_column(name, overflow="fold")
    for change in changed:
        cells = (change.name, change.spec, change.precision, ", ".join(change.sides), change.old, change.new)
        kind = Text(change.kind, style=_OF_CHECKS.get(change.kind, ""))
        table.add_row(*(Text(clean(cell or "-")) for cell in cells), kind)
    if changed:
        console.print(table)
    console.print(f"\n{WORDS[verdict]} ({len(changes) - len(changed)} as they were, {len(changed)} not)")


def print_ratios(comparison: Comparison, allowed: float, file: IO[str]) -> None:
    """Print a row for each ratio, then how many got worse by more than is allowed; NO_COLOR is honoured."""
    console, table = open_console(file), open_table()
    table.add_column("benchmark and ratio", overflow="fold")
    for name in ("old", "new", "worse by", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for change in comparison.changes:
        worse_by = "" if change.worse_by is None else f"{change.worse_by:+.1%}"
        both = Text(f"{clean(change.benchmark)}\n  {clean(change.ratio)}")
        verdict = Text(change.verdict, style=_OF_RATIOS.get(change.verdict, ""))
        table.add_row(both, _figure(change.old), _figure(change.new), worse_by, verdict)
    if comparison.changes:
        console.print(table)
    if not comparison.judged:
        console.print("\nnothing compared: the two files share no ratio that can be judged")
        return
    count = len(comparison.worse)
    what = f"{count} of {comparison.judged} ratios got worse by more than {100 * allowed:.6g} %"
    console.print(f"\n{what} and outside of the spread", soft_wrap=True)


def _figure(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.3g} ({ratio.q1:.3g}..{ratio.q3:.3g})"
