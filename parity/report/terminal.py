"""Check records as a table on a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from parity.report.layout import Column, print_rows, print_wrapped
from parity.report.words import FIGURES, HEADS, clean, duration, findings, number_of_checks, row
from parity.results import CheckRecord, Verdict, overall

__all__ = ["WIDTH", "open_console", "print_table"]

_STYLES: dict[Verdict, str] = {
    "holds": "green",
    "broken": "bold red",
    "crashed": "bold red",
    "inconclusive": "yellow",
    "empty": "yellow",
}
WIDTH = 400
"""Columns of a table where there is no terminal to ask: one line for each row, which other programs can read."""

MOST_LINES = 50
"""Lines of findings of one check that are shown."""


VERDICT = HEADS.index("verdict")

_RANKS = {"criterion": 5, "steps": 4, "seconds": 3, "x envelope": 2, "max rel diff": 1}
"""Importance of the columns that do not identify a check; the highest rank gives way first."""

COLUMNS = tuple(
    Column(name=name, rank=_RANKS.get(name, 0), right=number >= len(HEADS) - FIGURES, wraps=name == "sides")
    for number, name in enumerate(HEADS)
)


def open_console(file: IO[str]) -> Console:
    """Return what prints to a file, as wide as its terminal; with NO_COLOR set, it prints no escape codes."""
    return Console(
        file=file,
        highlight=False,
        width=None if file.isatty() else WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def print_table(
    records: Sequence[CheckRecord], file: IO[str], environment_of: Mapping[str, Any] | None = None
) -> None:
    """Print one table of verdicts, then the findings, then the overall verdict; NO_COLOR is honoured.

    Args:
        records: The checks.
        file: Where to.
        environment_of: That of the JSON document, for the time that all took.
    """
    console, rows = open_console(file), []
    for record in records:
        cells: list[Text | str] = list(row(record))
        cells[VERDICT] = Text(record.verdict, style=_STYLES[record.verdict])
        rows.append(cells)
    print_rows(console, COLUMNS, rows)
    for record in records:
        if record.verdict != "holds":
            _print_findings(console, record)
    verdict = overall(records)
    total = duration(records, environment_of or {})
    console.print(f"\nverdict: [{_STYLES[verdict]}]{verdict}[/] ({number_of_checks(len(records))}, {total:.0f} s)")


def _print_findings(console: Console, record: CheckRecord) -> None:
    title = f"{record.name} {record.spec} {record.precision} ({', '.join(record.sides)})"
    console.print()
    print_wrapped(console, f"{clean(title)}: {record.verdict}")
    lines = findings(record)
    for line in lines[:MOST_LINES]:
        print_wrapped(console, line, indent=2)
    if len(lines) > MOST_LINES:
        console.print(f"  and {len(lines) - MOST_LINES} more")
