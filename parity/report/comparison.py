"""Two results compared on a terminal: checks by their verdicts, benchmarks by their ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.text import Text

from parity.report.layout import Cells, Column, print_rows, print_wrapped
from parity.report.terminal import open_console
from parity.report.words import clean
from parity.results import BenchmarkComparison, Ratio, Verdict, VerdictChange

__all__ = ["print_changes", "print_ratios"]

WORDS: dict[Verdict, str] = {
    "holds": "no verdict got worse",
    "broken": "a verdict got worse, or a new check does not hold",
    "crashed": "a verdict got worse",
    "inconclusive": "a check of the old result is gone: it may have got worse",
    "empty": "nothing compared: the two results share no check",
}

_CHANGES = (
    *(Column(name=name) for name in ("check", "spec", "precision")),
    Column(name="sides", wraps=True),
    *(Column(name=name) for name in ("old", "new", "change")),
)

_RATIOS = (
    Column(name="benchmark and ratio", wraps=True),
    Column(name="old", rank=2, right=True),
    Column(name="new", rank=1, right=True),
    Column(name="worse by", right=True),
    Column(name="verdict"),
)

_OF_CHECKS = {"worse": "bold red", "better": "green", "gone": "yellow"}
_OF_RATIOS = {"worse": "bold red", "better": "green", "undecided": "yellow", "unjudged": "yellow"}


def print_changes(changes: Sequence[VerdictChange], verdict: Verdict, file: IO[str]) -> None:
    """Print a row for each check that changed, then how many did not; NO_COLOR is honoured.

    Args:
        changes: What became of every check, as `compare_records` returns it.
        verdict: That of the comparison.
        file: Where it is printed.
    """
    console = open_console(file)
    rows: list[Cells] = []
    changed = [change for change in changes if change.kind != "same"]
    for change in changed:
        cells = (change.name, change.spec, change.precision, ", ".join(change.sides), change.old, change.new)
        kind = Text(change.kind, style=_OF_CHECKS.get(change.kind, ""))
        rows.append([*(cell or "-" for cell in cells), kind])
    print_rows(console, _CHANGES, rows)
    console.print()
    print_wrapped(console, f"{WORDS[verdict]} ({len(changes) - len(changed)} as they were, {len(changed)} not)")


def print_ratios(comparison: BenchmarkComparison, allowed: float, file: IO[str]) -> None:
    """Print a row for each ratio, then how many got worse by more than is allowed; NO_COLOR is honoured.

    Args:
        comparison: What became of every ratio.
        allowed: The change that the comparison allowed, as a fraction: 0.05 for 5 %.
        file: Where it is printed.
    """
    console, rows = open_console(file), []
    for change in comparison.changes:
        worse_by = "" if change.worse_by is None else f"{change.worse_by:+.1%}"
        both = Text(f"{clean(change.benchmark)}\n  {clean(change.ratio)}")
        verdict = Text(change.verdict, style=_OF_RATIOS.get(change.verdict, ""))
        rows.append((both, _figure(change.old), _figure(change.new), worse_by, verdict))
    print_rows(console, _RATIOS, rows)
    console.print()
    if not comparison.judged:
        print_wrapped(console, "nothing compared: the two files share no ratio that can be judged")
        return
    count = len(comparison.worse)
    what = f"{count} of {comparison.judged} ratios got worse by more than {100 * allowed:.6g} %"
    print_wrapped(console, f"{what} and outside of the spread")


def _figure(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.3g} ({ratio.q1:.3g}..{ratio.q3:.3g})"
