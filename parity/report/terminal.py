"""Check records as a table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.report.words import clean, findings, short, sides
from parity.results import CheckRecord, Verdict, overall

__all__ = ["print_table"]

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


def print_table(records: Sequence[CheckRecord], file: IO[str]) -> None:
    """Print one table of verdicts, then what was found wrong, then the overall verdict; NO_COLOR is honoured."""
    console = Console(file=file, highlight=False, width=None if file.isatty() else WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "spec", "precision", "sides", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("criterion")
    for name in ("steps", "max rel diff", "x envelope", "seconds"):
        table.add_column(name, justify="right")
    for record in records:
        table.add_row(
            _text(record.name.partition(" ")[0]),
            _text(record.spec),
            _text(record.precision),
            _text(sides(record)),
            Text(record.verdict, style=_STYLES[record.verdict]),
            _text(record.criterion),
            str(record.steps_compared),
            short(record.max_rel_diff),
            short(record.envelope_multiple),
            f"{record.seconds:.1f}",
        )
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


def _text(value: str) -> Text:
    """Return text of a file as a cell: no markup of its own counts."""
    return Text(clean(value))
