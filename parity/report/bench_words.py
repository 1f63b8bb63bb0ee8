"""A file of benchmarks as a terminal table and as Markdown, and the words of its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from rich.text import Text

from parity.report.bench_names import bench_name
from parity.report.bench_speeds import MODELS, SPEED_HEADS, SpeedRow, speed_rows, speed_words
from parity.report.layout import Cells, Column, print_rows, print_wrapped
from parity.report.markdown import cell, environment, table
from parity.report.terminal import open_console
from parity.report.words import MARKS, clean
from parity.results import BarOutcome, BenchmarkFile, Ratio, Verdict

__all__ = [
    "BENCH_HEADS",
    "GROWTHS",
    "bench_growths",
    "bench_markdown",
    "bench_outcome",
    "bench_rows",
    "bench_verdict",
    "bench_words",
    "print_benchmarks",
    "print_speeds",
    "speed_markdown",
    "spread_words",
    "summary",
    "surroundings",
]

OUTCOMES: dict[Verdict, str] = {
    "holds": "bars met",
    "broken": "bars missed",
    "crashed": "crashed",
    "inconclusive": "no bars",
    "empty": "empty",
}
"""Verdict to its name where bars are judged."""

GROWTHS = ("benchmark", "growth", "of", "slope", "intercept", "r²")
"""Heads of the table of straight lines through sizes."""

BENCH_HEADS = ("benchmark", "ratio", "median", "95 % interval", "rounds", "bar", "")

_RANKS = {"rounds": 3, "95 % interval": 2, "bar": 1}

COLUMNS = tuple(
    Column(
        name=name or "verdict",
        rank=_RANKS.get(name, 0),
        right=name in ("median", "rounds"),
        wraps=name in ("benchmark", "ratio"),
    )
    for name in BENCH_HEADS
)

SPEEDS = tuple(Column(name=name, right=number > 0, wraps=number == 0) for number, name in enumerate(SPEED_HEADS))
"""Columns of the table of steps per second."""


def bench_verdict(file: BenchmarkFile) -> Verdict:
    """Return the verdict on the bars of a file.

    Returns:
        `broken` if one is missed, else `inconclusive` if one is undecided or there is none, else `holds`; `empty` if
        there is no benchmark.
    """
    if not file.benchmarks:
        return "empty"
    found = _outcomes(file)
    if "missed" in found:
        return "broken"
    return "holds" if found and "undecided" not in found else "inconclusive"


def bench_outcome(file: BenchmarkFile) -> str:
    """Return the verdict in the words of bars: `bars met`, `bars missed`, `bars undecided`, `no bars`."""
    verdict = bench_verdict(file)
    return "bars undecided" if verdict == "inconclusive" and _outcomes(file) else OUTCOMES[verdict]


def bench_words(file: BenchmarkFile) -> str:
    """Return the verdict in one sentence."""
    found = _outcomes(file)
    if not file.benchmarks:
        return "No benchmark was run. That is not a success."
    if not found:
        return "No ratio has a bar: times and ratios are recorded, nothing is judged."
    missed, undecided = found.count("missed"), found.count("undecided")
    words = [f"{missed} of {len(found)} ratios with a bar miss it."] if missed else []
    if undecided:
        words.append(f"{undecided} of {len(found)} are undecided: the bar lies within the 95 % interval.")
    return " ".join(words) or f"All {len(found)} ratios with a bar reach it."


def summary(ratio: Ratio) -> str:
    """Return the bar of a ratio in words: `at most 1.02`."""
    if ratio.bar is None:
        return ""
    return f"at {'most' if ratio.better == 'lower' else 'least'} {ratio.bar:.4g}"


def spread_words(ratio: Ratio) -> str:
    """Return the 95 % interval of a ratio; its quartiles, named so, where the file has no interval."""
    if ratio.interval is None:
        return f"quartiles {ratio.q1:.4g} to {ratio.q3:.4g}"
    return f"{ratio.interval[0]:.4g} to {ratio.interval[1]:.4g}"


def surroundings(file: BenchmarkFile) -> dict[str, Any]:
    """Return the machine of the benchmarks, without the name and the kernel build of the host."""
    return {name: value for name, value in file.machine.items() if name not in ("node", "release")}


def print_benchmarks(file: BenchmarkFile, out: IO[str]) -> None:
    """Print the steps per second, a row for each ratio, then the verdict on the bars; NO_COLOR is honoured.

    Args:
        file: The benchmarks.
        out: Where they are printed.
    """
    console = open_console(out)
    speeds = speed_rows([file])
    if speeds:
        print_rows(console, SPEEDS, [row.cells for row in speeds])
        console.print()
    rows: list[Cells] = []
    for *cells, reached in bench_rows(file):
        style = {"missed": "bold red", "met": "green", "undecided": "yellow"}.get(reached, "")
        rows.append([*cells, Text(reached, style=style)])
    print_rows(console, COLUMNS, rows)
    outcome = bench_outcome(file)
    console.print()
    print_wrapped(console, f"{outcome} ({len(file.benchmarks)} benchmarks). {bench_words(file)}")


RUN_HEADS = ("what", "steps per second", "median of a round", "fastest to slowest")
"""Heads of the table that `parity bench run` prints."""


def print_speeds(file: BenchmarkFile, out: IO[str]) -> None:
    """Print the steps per second of each way that was measured, and their ratios; nothing is judged.

    Args:
        file: The benchmarks.
        out: Where they are printed.
    """
    console = open_console(out)
    columns = [Column(name=name, right=number > 0, wraps=number == 0) for number, name in enumerate(RUN_HEADS)]
    rows: list[Cells] = []
    for one in file.benchmarks:
        low, middle, high = (f"{one.seconds[name]:.3g} s" for name in ("min", "median", "max"))
        speed = speed_words(one.steps_per_second or 0.0)
        rows.append((clean(one.name), speed, middle, f"{low} to {high}, {one.seconds['rounds']:.0f} rounds"))
    print_rows(console, columns, rows)
    for ratio in (ratio for one in file.benchmarks for ratio in one.ratios):
        print_wrapped(console, f"{ratio.name}: {ratio.median:.3g} times (95 % interval {spread_words(ratio)})")


def bench_markdown(file: BenchmarkFile, *, speeds: bool = True) -> str:
    """Return a heading with the verdict, steps per second, the ratios, the growth fits, and the machine.

    Args:
        file: The benchmarks.
        speeds: Whether the table of steps per second is wanted; a page of several files has one for all.
    """
    verdict = bench_verdict(file)
    parts = [
        f"## {MARKS[verdict]} parity bench: {bench_outcome(file)}",
        f"Measured {cell(file.measured)}. {bench_words(file)}",
    ]
    found = speed_rows([file]) if speeds else []
    if found:
        parts.append(speed_markdown(found))
    rows = bench_rows(file)
    if rows:
        parts.append(table(BENCH_HEADS, rows))
    growths = bench_growths(file)
    if growths:
        parts.append(table(GROWTHS, growths, right=3))
    parts.append(environment(surroundings(file)))
    return "\n\n".join(parts) + "\n"


def speed_markdown(rows: Sequence[SpeedRow]) -> str:
    """Return the table of steps per second."""
    return table(SPEED_HEADS, [row.cells for row in rows], right=len(MODELS))


def bench_growths(file: BenchmarkFile) -> list[Sequence[str]]:
    """Return the cells of each straight line, in the order of `GROWTHS`."""
    return [
        (bench_name(b), g.name, f"{g.y} by {g.x}", f"{g.slope:.4g}", f"{g.intercept:.4g}", f"{g.r2:.4f}")
        for b in file.benchmarks
        for g in b.growth
    ]


def _outcomes(file: BenchmarkFile) -> list[BarOutcome]:
    """Return what each ratio with a bar comes to."""
    found = [ratio.outcome for benchmark in file.benchmarks for ratio in benchmark.ratios]
    return [outcome for outcome in found if outcome is not None]


def bench_rows(file: BenchmarkFile) -> list[Sequence[str]]:
    """Return the cells of each ratio, in the order of `BENCH_HEADS`."""
    return [
        (
            bench_name(benchmark),
            f"{ratio.name} ({ratio.of})",
            f"{ratio.median:.4g}",
            spread_words(ratio),
            str(ratio.rounds),
            summary(ratio),
            ratio.outcome or "",
        )
        for benchmark in file.benchmarks
        for ratio in benchmark.ratios
    ]
