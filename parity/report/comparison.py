"""Two results of checks beside each other on a terminal: what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.report.terminal import WIDTH
from parity.report.words import clean
from parity.results import Verdict, VerdictChange

__all__ = ["print_changes"]

WORDS: dict[Verdict, str] = {
    "holds": "no verdict got worse",
    "broken": "a verdict got worse, or a new check does not hold",
    "crashed": "a verdict got worse",
    "inconclusive": "a check of the old result is gone: it may have got worse",
    "empty": "nothing compared: the two results share no check",
}

_STYLES = {"worse": "bold red", "better": "green", "gone": "yellow"}


def print_changes(changes: Sequence[VerdictChange], verdict: Verdict, file: IO[str]) -> None:
    """Print a row for each check that changed, then how many did not; NO_COLOR is honoured."""
    console = Console(file=file, highlight=False, width=None if file.isatty() else WIDTH)
    changed = [change for change in changes if change.kind != "same"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "spec", "precision", "sides", "old", "new", ""):
        table.add_column(name, overflow="fold")
    for change in changed:
        cells = (change.name, change.spec, change.precision, ", ".join(change.sides), change.old, change.new)
        table.add_row(
            *(Text(clean(cell or "-")) for cell in cells), Text(change.kind, style=_STYLES.get(change.kind, ""))
        )
    if changed:
        console.print(table)
    console.print(f"\n{WORDS[verdict]} ({len(changes) - len(changed)} as they were, {len(changed)} not)")
