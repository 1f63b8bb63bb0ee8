"""A result as Markdown: for the summary of a CI job, for a page in docs/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parity.report.words import (
    FIGURES,
    HEADLINES,
    HEADS,
    MARKS,
    clean,
    counts,
    duration,
    findings,
    flatten,
    meaning,
    number_of_checks,
    row,
)
from parity.results import CheckRecord, overall

__all__ = ["cell", "check_markdown", "check_table", "environment", "table"]

MOST_LINES = 50
"""Lines of findings of one check that are shown."""

MOST_TEXT = 1_000
"""Characters of one text that are shown."""


def check_markdown(
    records: Sequence[CheckRecord], environment_of: Mapping[str, Any], *, surroundings: bool = True
) -> str:
    """Return a heading with the verdict, the table of checks, the findings, and the environment.

    Args:
        records: The checks.
        environment_of: What the result depends on, as `environment` of its document.
        surroundings: Whether the environment is wanted; a page of several results has one for all.
    """
    verdict = overall(records)
    seconds = duration(records, environment_of)
    parts = [f"## {MARKS[verdict]} parity check: {verdict}", HEADLINES[verdict]]
    if records:
        parts += [f"{number_of_checks(len(records))} in {seconds:.0f} s: {counts(records)}.", check_table(records)]
    parts += [_found(record) for record in records if record.verdict != "holds"]
    if surroundings:
        parts.append(environment(environment_of))
    return "\n\n".join(parts) + "\n"


def check_table(records: Iterable[CheckRecord]) -> str:
    """Return the table of verdicts."""
    rows = []
    for record in records:
        *names, verdict, criterion, steps, difference, multiple, seconds = row(record)
        verdict = f"{MARKS[record.verdict]} {verdict}"
        rows.append((*names, verdict, criterion, steps, difference, multiple, seconds))
    return table(HEADS, rows, right=FIGURES)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int = 0) -> str:
    """Return a table.

    Args:
        heads: Names of the columns.
        rows: Cells of each row, as many as there are columns; any text is shown as it is.
        right: How many of the last columns are aligned to the right.

    Example:
        >>> print(table(["check", "seconds"], [["resume", "1.5"]], right=1))
        | check | seconds |
        | --- | --: |
        | resume | 1.5 |
    """
    rule = ["---"] * (len(heads) - right) + ["--:"] * right
    lines = [heads, *rows]
    shown = [" | ".join(cell(value) for value in line) for line in lines]
    return "\n".join(f"| {line} |" for line in (shown[0], " | ".join(rule), *shown[1:]))


def cell(value: object) -> str:
    r"""Return text from anywhere as Markdown that shows it as it is, in a table too.

    Example:
        >>> print(cell("a|b <img src=x> *c* first_moment"))
        a\|b &lt;img src=x&gt; \*c\* first_moment
    """
    text = clean(value)
    text = text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " ..."
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]|~$])", r"\\\1", text)
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return re.sub(r"(https?|www)([:.])", r"\1<!-- -->\2", text, flags=re.IGNORECASE).replace("@", "@<!-- -->")


def environment(values: Mapping[str, Any]) -> str:
    """Return what a result depends on, folded."""
    rows = [(name, str(value)) for name, value in flatten(values)]
    return f"<details><summary>Environment</summary>\n\n{table(('what', 'value'), rows)}\n\n</details>"


def _found(record: CheckRecord) -> str:
    """Return the findings of a check that does not hold."""
    title = " ".join(cell(part) for part in (record.name, record.spec, record.precision))
    lines = findings(record)
    rest = len(lines) - MOST_LINES
    shown = [f"- {cell(line)}" for line in lines[:MOST_LINES]] + ([f"- and {rest} more"] if rest > 0 else [])
    heading = f"### {MARKS[record.verdict]} {title} ({cell(', '.join(record.sides))}): {record.verdict}"
    return "\n\n".join([heading, meaning(record), *(["\n".join(shown)] if shown else [])])
