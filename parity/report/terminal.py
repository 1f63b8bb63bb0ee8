"""Check records as a table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from parity.checks.record import CheckRecord, Verdict, overall

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
        verdict = f"[{_STYLES[record.verdict]}]{record.verdict}[/]"
        table.add_row(
            record.name.partition(" ")[0],
            record.spec,
            record.precision,
            " > ".join(record.sides) if record.name.startswith("handover") else ", ".join(record.sides),
            verdict,
            record.criterion,
            str(record.steps_compared),
            _number(record.max_rel_diff),
            _number(record.envelope_multiple),
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
    console.print(f"\n{record.name} {record.spec} {record.precision} ({', '.join(record.sides)}): {record.verdict}")
    lines = []
    if record.suspects:
        lines.append(f"suspects: {', '.join(record.suspects)}")
    if record.first_divergence is not None:
        first = record.first_divergence
        lines.append(f"first divergence: step {first.step}, {first.quantity}: {first.expected} became {first.got}")
    for line in (*lines, *record.notes):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _number(value: Any) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.2g}"
