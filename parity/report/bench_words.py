"""A file of benchmarks as a terminal table and as Markdown, and the words of its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from rich.text import Text

from parity.report.markdown import cell, environment, table
from parity.report.terminal import open_console, open_table
from parity.report.words import MARKS, clean
from parity.results import BenchmarkFile, Ratio, Verdict

__all__ = [
    "OUTCOMES",
    "bench_markdown",
    "bench_verdict",
    "bench_words",
    "met",
    "print_benchmarks",
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

HEADS = ("benchmark", "ratio", "median", "quartiles", "rounds", "bar", "")


def bench_verdict(file: BenchmarkFile) -> Verdict:
    """Return `broken` if a bar is missed, `empty` if there is no benchmark, `inconclusive` if there is no bar."""
    if not file.benchmarks:
        return "empty"
    reached = [ratio.met for ratio in _ratios(file) if ratio.met is not None]
    if not reached:
        return "inconclusive"
    return "holds" if all(reached) else "broken"


def bench_words(file: BenchmarkFile) -> str:
    """Return the verdict in one sentence."""
    reached = [ratio.met for ratio in _ratios(file) if ratio.met is not None]
    if not file.benchmarks:
        return "No benchmark was run. That is not a success."
    if not reached:
        return "No ratio has a bar: times and ratios are recorded, nothing is judged."
    missed = reached.count(False)
    if missed:
        return f"{missed} of {len(reached)} ratios with a bar miss it."
    return f"All {len(reached)} ratios with a bar reach it."


def summary(ratio: Ratio) -> str:
    """Return the bar of a ratio in words: `at most 1.02`."""
    if ratio.bar is None:
        return ""
    return f"at {'most' if ratio.better == 'lower' else 'least'} {ratio.bar:.4g}"


def met(ratio: Ratio) -> str:
    """Return whether a ratio reaches its bar."""
    return "" if ratio.met is None else "met" if ratio.met else "missed"


def surroundings(file: BenchmarkFile) -> dict[str, Any]:
    """Return the machine of the benchmarks, without the name and the kernel build of the host."""
    return {name: value for name, value in file.machine.items() if name not in ("node", "release")}


def print_benchmarks(file: BenchmarkFile, out: IO[str]) -> None:
    """Print a row for each ratio, then the verdict on the bars; NO_COLOR is honoured."""
    console = open_console(out)
    shown = open_table()
    for name in HEADS:
        right = name in ("median", "rounds")
        shown.add_column(name, justify="right" if right else "left", overflow="fold")
    rows = _rows(file)
    for *cells, reached in rows:
        style = {"missed": "bold red", "met": "green"}.get(reached, "")
        shown.add_row(*(Text(clean(cell)) for cell in cells), Text(reached, style=style))
    if rows:
        console.print(shown)
    outcome = OUTCOMES[bench_verdict(file)]
    console.print(f"\n{outcome} ({len(file.benchmarks)} benchmarks). {bench_words(file)}", soft_wrap=True)


def bench_markdown(file: BenchmarkFile) -> str:
    """Return a heading with the verdict, the table of ratios, the growth fits, and the machine."""
    verdict = bench_verdict(file)
    parts = [
        f"## {MARKS[verdict]} parity bench: {OUTCOMES[verdict]}",
        f"Measured {cell(file.measured)}. {bench_words(file)}",
    ]
    rows = _rows(file)
    if rows:
        parts.append(table(HEADS, rows))
    growths = [
        (b.name, g.name, f"{g.y} by {g.x}", f"{g.slope:.4g}", f"{g.intercept:.4g}", f"{g.r2:.4f}")
        for b in file.benchmarks
        for g in b.growth
    ]
    if growths:
        heads = ("benchmark", "growth", "of", "slope", "intercept", "r²")
        parts.append(table(heads, growths, right=3))
    parts.append(environment(surroundings(file)))
    return "\n\n".join(parts) + "\n"


def _ratios(file: BenchmarkFile) -> list[Ratio]:
    return [ratio for benchmark in file.benchmarks for ratio in benchmark.ratios]


def _rows(file: BenchmarkFile) -> list[Sequence[str]]:
    return [
        (
            benchmark.name,
            f"{ratio.name} ({ratio.of})",
            f"{ratio.median:.4g}",
            f"{ratio.q1:.4g} to {ratio.q3:.4g}",
            str(ratio.rounds),
            summary(ratio),
            met(ratio),
        )
        for benchmark in file.benchmarks
        for ratio in benchmark.ratios
    ]
