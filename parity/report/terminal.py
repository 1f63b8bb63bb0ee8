"""Check records as a table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.report.words import FIGURES, HEADS, clean, findings, row
from parity.results import CheckRecord, Verdict, overall

__all__ = ["WIDTH", "open_console", "open_table", "print_table"]

_STYLES: dict[Verdict, str] = {
    "holds": "green",
    "broken": "bold red",
    "crashed": "bold red",
    "inconclusive": "yellow",
    "empty": "yellow",
}
WIDTH = 118
"""Columns of the table where there is no terminal to ask."""

MOST_LINES = 50
"""Lines of findings of one check that are shown."""


VERDICT = HEADS.index("verdict")


def open_console(file: IO[str]) -> Console:
    """Return what prints to a file, as wide as its terminal; NO_COLOR is honoured."""
    return Console(file=file, highlight=False, width=None if file.isatty() else WIDTH)


def open_table() -> Table:
    """Return a table without lines, its heads bold."""
    return Table(box=None, pad_edge=False, header_style="bold")


def print_table(records: Sequence[CheckRecord], file: IO[str]) -> None:
    """Print one table of verdicts, then the findings, then the overall verdict; NO_COLOR is honoured."""
    console, table = open_console(file), open_table()
    for number, name in enumerate(HEADS):
        figure = number >= len(HEADS) - FIGURES
        table.add_column(name, justify="right" if figure else "left", no_wrap=number <= VERDICT)
    for record in records:
        cells = [Text(clean(cell)) for cell in row(record)]
        cells[VERDICT].stylize(_STYLES[record.verdict])
        table.add_row(*cells)
    if records:
        console.print(table)
    for record in records:
        if record.verdict != "holds":
            _print_findings(console, record)
    verdict = overall(records)
    total = sum(record.seconds for record in records)
    console.print(f"\nverdict: [{_STYLES[verdict]}]{verdict}[/] ({len(records)} checks, {total:.0f} s)")


def _print_findings(console: Console, record: CheckRecord) -> None:
    title = f"{record.name} {record.spec} {record.precision} ({', '.join(record.sides)})"
    console.print(f"\n{clean(title)}: {record.verdict}", markup=False, soft_wrap=True)
    lines = findings(record)
    for line in lines[:MOST_LINES]:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if len(lines) > MOST_LINES:
        console.print(f"  and {len(lines) - MOST_LINES} more")
