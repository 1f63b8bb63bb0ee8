"""Write the results page, the figures of the README and the chart of speeds from real results: `make results`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from benchmarks.results_layout import Part, bars_summary, environment_section, part_of, subject_sections
from parity.errors import ParityError, ResultError
from parity.report import (
    NOT_MEASURED,
    SpeedRow,
    cell,
    check_markdown,
    speed_markdown,
    speed_rows,
)
from parity.report.html import speed_file
from parity.results import BenchmarkFile, CheckResult, read_result
from parity.storage import replace_file

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
"""What lies between them in the README is replaced."""

COMMAND = "make results"

TITLE = "Results"
"""Heading of docs/results.md; a page of another title leaves out headlines that it has no figures for."""

OF_A_COMMAND = {"time", "command", "data", "seconds"}
"""What the environment of a check has of the command, not of the machine and the code."""

SIGNED = "<!-- digest of the page above: {} -->"
"""Last line of the page: the results themselves are not kept, and a figure edited by hand must be noticed."""


FIGURES = "Medians of ratios that were taken round by round, with their 95 % intervals:"

CHART = "steps-per-second.svg"
"""Name of the chart beside the results page."""

DRAWN = "<!-- digest of {}: {} -->"
"""Line of the page below the chart: a chart of other figures must be noticed."""


def results_page(
    check: CheckResult,
    files: Sequence[BenchmarkFile],
    speeds: Sequence[SpeedRow] = (),
    chart: str = CHART,
    command: str = COMMAND,
    title: str = TITLE,
) -> str:
    """Return docs/results.md: a summary, steps per second, the checks, the benchmarks, then a digest of all of it.

    Args:
        check: The checks.
        files: The benchmarks.
        speeds: Steps per second, for table and chart.
        chart: Name of the chart, beside the page.
        command: What the page says that it was made by.
        title: Its heading.
    """
    environment = {name: value for name, value in check.environment.items() if name != "platform"}  # a kernel's build
    checks = check_markdown(check.records, environment, surroundings=False).strip()
    fast = speed_section(speeds, chart, "make bench" if title == TITLE else command)
    if speeds:
        fast += "\n\n" + DRAWN.format(chart, xxhash.xxh3_64_hexdigest(speed_file(speeds).encode()))
    return page_of(checks, environment, [part_of(file) for file in files], fast, command, title)


def page_of(
    checks: str,
    environment: Mapping[str, Any],
    parts: Sequence[Part],
    fast: str,
    command: str = COMMAND,
    title: str = TITLE,
) -> str:
    """Return the page.

    Args:
        checks: Heading, table and findings of the checks.
        environment: That of the checks.
        parts: The benchmarks.
        fast: The section of steps per second, below its heading.
        command: What the page says that it was made by.
        title: Its heading.
    """
    commit = environment.get("commit") or "of an installed package"
    commit += " with uncommitted changes" if environment.get("dirty") is True else ""
    intro = f"Made by `{command}`, not written by hand. The checks ran on commit {commit}; benchmarks name their own."
    when = dict.fromkeys(cell(part.measured) for part in parts if not part.rows)
    if when:
        fast += f"\n\nMeasured {'; '.join(when)}."
    body = [
        f"## Steps per second\n\n{fast}",
        checks,
        *subject_sections(parts),
        environment_section(environment, parts),
    ]
    figures = "\n".join(line for line in headlines("\n\n".join(body)) if title == TITLE or NOT_MEASURED not in line)
    figures = figures if any(part.rows for part in parts) else ""
    summary = ["## Summary", *([FIGURES, figures] if figures else []), bars_summary(parts)]
    return signed("\n\n".join([f"# {title}", intro, *summary, *body]))


def speed_section(rows: Sequence[SpeedRow], chart: str, command: str = "make bench") -> str:
    """Return the chart and the table of steps per second; a sentence where nothing was measured.

    Args:
        rows: What was measured.
        chart: Path of the chart as links name it.
        command: What measures them.
    """
    if not rows:
        return f"Steps per second: {NOT_MEASURED}; `{command}` measures them."
    return f"![Steps per second of each side, by mode and devices]({chart})\n\n{speed_markdown(rows)}"


def signed(text: str) -> str:
    """Return a page with its digest in the last line."""
    return f"{text}\n\n{SIGNED.format(xxhash.xxh3_64_hexdigest(text.encode()))}\n"


def is_as_written(page: str) -> bool:
    """Return whether a page is as `signed` returned it."""
    return signed(page[: page.rfind(SIGNED.partition(":")[0])].rstrip("\n")) == page


def chart_fits(page: str, chart: str | None) -> bool:
    """Return whether a chart is the one that the page was written with; None where there is no file of it."""
    line = None if chart is None else DRAWN.format(CHART, xxhash.xxh3_64_hexdigest(chart.encode()))
    written = [found for found in page.splitlines() if found.startswith(DRAWN.partition("{")[0] + CHART)]
    return written == ([] if line is None else [line])


class Headline(NamedTuple):
    """A sentence of the README, with figures of the page."""

    text: str
    """With a place `{}` for each figure."""
    rows: tuple[tuple[str, str], ...]
    """First columns of the rows that the figures are from: the benchmark, and how the ratio begins."""


HEADLINES = (
    Headline(
        "**`lax.scan` over a loop** of the same steps: {} the steps per second of the smallest model, {} of the GPT.",
        (
            ("Scan against loop by size: hidden 8, batch 8", "scan over loop"),
            ("Scan against loop: gpt-text", "scan over loop"),
        ),
    ),
    Headline(
        "**The PyTorch twin**, steps per second: {} Lightning's, {} those of the Hugging Face Trainer.",
        (
            ("PyTorch twin against lightning", "twin over lightning"),
            ("PyTorch twin against transformers", "twin over transformers"),
        ),
    ),
    Headline(
        "**A save** delays the loop by the time of copying the state in memory, {} in PyTorch and {} in JAX.",
        (("Delay of the loop: to 300 M, PyTorch", "delay by"), ("Delay of the loop: to 300 M, JAX", "delay by")),
    ),
    Headline(
        "**A conversion**, read back and sealed, against a durable copy: {} its time to Orbax, {} to PyTorch.",
        (
            ("Conversion against copy: to Orbax, to Orbax, as they are", "convert / copy"),
            ("Conversion against copy: to PyTorch, to PyTorch, as they are", "convert / copy"),
        ),
    ),
)


def headlines(page: str) -> list[str]:
    """Return the headlines with the figures of a page; what it does not have is said to be not measured."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("|")
    ]
    return ["- " + one.text.format(*(_figure(rows, title, ratio) for title, ratio in one.rows)) for one in HEADLINES]


def _figure(rows: Sequence[Sequence[str]], title: str, ratio: str) -> str:
    """Return a ratio with its interval, by its row on the page."""
    found = (row for row in rows if len(row) > 3 and row[0] == title and row[1].startswith(ratio))
    row = next(found, None)
    return f"({NOT_MEASURED})" if row is None else f"{float(row[2]):.3g} times ({_interval(row[3])})"


def _interval(text: str) -> str:
    return " to ".join(f"{float(end):.3g}" for end in text.split(" to "))


def readme_block(page: str) -> str:
    """Return what stands between the markers of the README, the markers included: figures of the results page."""
    heading = re.search(r"^## (\S+) parity check: (\w+)$", page, re.MULTILINE)
    count = re.search(r"^\d+ checks? in .*$", page, re.MULTILINE)
    if heading is None or count is None:
        raise ResultError("the page of results has no heading of checks, or no count of them")
    lines = [
        BEGIN,
        f"`{COMMAND}` wrote this from [docs/results.md](docs/results.md): medians of ratios, with 95 % intervals.",
        "\n".join([f"- **Checks** {heading[1]} {heading[2]}. {count[0]}", *headlines(page)]),
    ]
    if f"]({CHART})" in page:
        lines.append(f"![Steps per second of each side, by mode and devices](docs/{CHART})")
    return "\n\n".join([*lines, END])


def replaced(text: str, block: str, where: object) -> str:
    """Return a text with what lies between the markers replaced.

    Raises:
        ResultError: The markers do not occur, once each and in their order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ResultError(
            f"{where} needs the lines {BEGIN} and {END}, once each and in this order; put them where the "
            "figures belong"
        )
    return text[: text.index(BEGIN)] + block + text[text.index(END) + len(END) :]


def main(argv: Sequence[str] | None = None) -> int:
    """Write all of it, and return 0; 2 where a result or the README cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", type=Path, nargs="+", help="check.json of `parity check --report`; several are one")
    parser.add_argument("--bench", type=Path, action="append", default=[], help="of `make bench`; left out if absent")
    parser.add_argument("--before", type=Path, action="append", default=[], help="benchmarks of an earlier state")
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--no-readme", action="store_true", help="write the page and its chart alone")
    parser.add_argument("--chart", default=CHART, help="name of the chart, beside the page")
    parser.add_argument("--command", default=COMMAND, help="what the page says that it was made by")
    parser.add_argument("--title", default=TITLE, help="heading of the page")
    options = parser.parse_args(argv)
    try:
        check = _joined([_checks(path) for path in options.check])
        files, before = (
            [_benchmarks(path) for path in paths if path.exists()] for paths in (options.bench, options.before)
        )
        speeds = speed_rows(files, before)
        page = results_page(check, files, speeds, options.chart, options.command, options.title)
        if not options.no_readme:
            readme = replaced(options.readme.read_text(encoding="utf-8"), readme_block(page), options.readme)
            replace_file(options.readme, readme)
        replace_file(options.page, page)
        chart = options.page.with_name(options.chart)
        if speeds:
            replace_file(chart, speed_file(speeds))
        else:
            chart.unlink(missing_ok=True)
    except (ParityError, OSError, UnicodeDecodeError) as error:
        print(f"results: error: {error}", file=sys.stderr)
        return 2
    return 0


def _checks(path: Path) -> CheckResult:
    found = read_result(path)
    if not isinstance(found, CheckResult):
        raise ResultError(f"{path} holds benchmarks; the first file must be a result of `parity check`")
    return found


def _joined(checks: Sequence[CheckResult]) -> CheckResult:
    """Return the checks of several commands as one result; they must be of one code on one kind of machine.

    Of the first, it has the time; what each read is taken together, and so are their seconds.

    Raises:
        ResultError: Their environments differ in more than what each command has of its own.
    """
    first, *others = checks
    if not others:
        return first
    for other in others:
        names = {*first.environment, *other.environment} - OF_A_COMMAND
        differ = sorted(name for name in names if first.environment.get(name) != other.environment.get(name))
        if differ:
            raise ResultError(f"the checks are not of one environment: {', '.join(differ)} differ")
    records = tuple(record for check in checks for record in check.records)
    joined = {name: value for name, value in first.environment.items() if name != "command"}
    if data := [check.environment["data"] for check in checks if "data" in check.environment]:
        joined["data"] = {name: value for one in data for name, value in one.items()}
    if "seconds" in joined:
        joined["seconds"] = sum(float(check.environment.get("seconds", 0)) for check in checks)
    return CheckResult(records=records, environment=joined)


def _benchmarks(path: Path) -> BenchmarkFile:
    found = read_result(path)
    if isinstance(found, CheckResult):
        raise ResultError(f"{path} holds checks, not benchmarks")
    return found


if __name__ == "__main__":
    sys.exit(main())
