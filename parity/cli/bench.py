"""`parity bench compare`: have the benchmarks got worse? Judged by ratios, never by times."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.cli.options import local_path
from parity.report import WIDTH, clean, quoted
from parity.results import EXIT_CODES, Change, Comparison, Ratio, RatioVerdict, compare, read_benchmarks

__all__ = ["add", "compare_files"]

ALLOWED = 0.05
"""Relative change of a ratio that passes where nothing else is asked for."""

_STYLES: dict[RatioVerdict, str] = {"worse": "bold red", "better": "green", "unjudged": "yellow"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `parity bench`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("compare", help="compare two files of benchmarks, ratio by ratio")
    one.add_argument("old", type=local_path, metavar="OLD.json", help="what is compared with; of `make bench`")
    one.add_argument("new", type=local_path, metavar="NEW.json", help="what may have got worse")
    one.add_argument(
        "--fail-on",
        type=_allowed,
        default=ALLOWED,
        metavar="ratio:P%",
        help="exit with 1 where a ratio got worse by more than P %% and its quartile range lies outside of the old "
        "one (default ratio:5%%)",
    )
    one.set_defaults(run=lambda options: compare_files(options.old, options.new, options.fail_on))


def compare_files(old: Path, new: Path, allowed: float = ALLOWED) -> int:
    """Print a row for each ratio; return 0 where none got worse, 1 where some did, 5 with none to judge."""
    comparison = compare(read_benchmarks(old), read_benchmarks(new), allowed)
    for warning in comparison.warnings:
        print(f"parity: warning: {clean(warning)}", file=sys.stderr)
    with quoted(sys.stdout):
        _print(comparison, allowed, sys.stdout)
    if not comparison.judged:
        return EXIT_CODES["empty"]
    return EXIT_CODES["broken"] if comparison.worse else EXIT_CODES["holds"]


def _print(comparison: Comparison, allowed: float, file: IO[str]) -> None:
    """Print the table, then what it comes to; NO_COLOR is honoured."""
    console = Console(file=file, highlight=False, width=None if file.isatty() else WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("benchmark and ratio", overflow="fold")
    for name in ("old", "new", "worse by", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for change in comparison.changes:
        table.add_row(*_cells(change))
    if comparison.changes:
        console.print(table)
    if not comparison.judged:
        console.print("\nnothing compared: the two files share no ratio that can be judged")
        return
    count = len(comparison.worse)
    what = f"{count} of {comparison.judged} ratios got worse by more than {100 * allowed:.6g} %"
    console.print(f"\n{what} and outside of the spread", soft_wrap=True)


def _cells(change: Change) -> list[str | Text]:
    worse_by = "" if change.worse_by is None else f"{change.worse_by:+.1%}"
    name = Text(f"{clean(change.benchmark)}\n  {clean(change.ratio)}")
    verdict = Text(change.verdict, style=_STYLES.get(change.verdict, ""))
    return [name, _figure(change.old), _figure(change.new), worse_by, verdict]


def _figure(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.3g} ({ratio.q1:.3g}..{ratio.q3:.3g})"


def _allowed(text: str) -> float:
    """Return the relative change of `ratio:5%` as a fraction."""
    kind, _, rest = text.partition(":")
    if kind == "time":
        raise argparse.ArgumentTypeError(
            "times are recorded and never judged, they are the machine's; ask for ratio:5%"
        )
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)%", rest, re.ASCII)
    if kind != "ratio" or found is None:
        raise argparse.ArgumentTypeError(f"must be like ratio:5%, got {text!r}")
    return float(found[1]) / 100
