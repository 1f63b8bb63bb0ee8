"""The results page: its summary names every bar that is missed or undecided; one environment for all."""

from __future__ import annotations

import re

import pytest

from benchmarks.results_layout import (
    OTHER,
    SUBJECTS,
    Part,
    bars_summary,
    environment_section,
    subject_sections,
)
from tests.docs.pages import read


def a_row(name: str, outcome: str, figure: str = "1.1") -> tuple[str, ...]:
    return (
        name,
        "a / b (seconds of a / seconds of b)",
        figure,
        "1 to 1.2",
        "7",
        "at most 1.02" if outcome else "",
        outcome,
    )


def a_part(*rows: tuple[str, ...], measured: str = "today", **environment: str) -> Part:
    return Part(measured, rows, (), tuple(environment.items()))


def test_the_summary_counts_the_bars_and_names_those_that_are_not_met() -> None:
    rows = [a_row(f"Restore: {n}", outcome) for n, outcome in enumerate(("met", "met", "missed", "undecided", ""))]
    found = bars_summary([a_part(*rows[:2]), a_part(*rows[2:])])
    assert found.startswith("Of 4 ratios with a bar, 2 meet it and 1 miss it; 1 are undecided")
    assert "| missed | ratio | median | 95 % interval | bar |" in found
    assert "| Restore: 2 | a / b | 1.1 | 1 to 1.2 | at most 1.02 |" in found
    assert "| Restore: 3 | a / b |" in found
    assert "Restore: 0" not in found


def test_without_a_bar_nothing_is_claimed() -> None:
    assert bars_summary([a_part(a_row("Restore: 1", ""))]) == "No ratio with a bar was measured."


def test_a_section_says_what_is_measured_why_its_bar_is_what_it_is_and_what_came_of_it() -> None:
    (found,) = subject_sections(
        [a_part(a_row("Restore: 1", "missed")), a_part(a_row("Restore: 2", "met"), measured="then")]
    )
    assert found.startswith("## Restore: 1 missed, 1 met\n\nA restore that verifies every byte")
    assert "at most 2.0, from 100 million parameters on" in found
    assert "Measured today; then." in found


def test_what_belongs_to_no_subject_is_shown_as_that() -> None:
    (found,) = subject_sections([a_part(a_row("Something new", "met"))])
    assert found.startswith(f"## {OTHER.title}: 1 met")


def test_one_environment_with_a_row_for_each_source_where_they_differ() -> None:
    parts = [a_part(measured="first", cpu="A", python="3"), a_part(measured="second", cpu="B", python="3")]
    found = environment_section({"python": "3", "commit": "abc"}, parts)
    assert found.count("| python | 3 |") == 1
    assert "| cpu (first) | A |" in found
    assert "| cpu (second) | B |" in found
    assert "| commit | abc |" in found


def missing_from_summary(page: str) -> list[str]:
    """Return the benchmarks whose bar is not met in a section of a page and that its summary does not name."""
    summary, _, rest = page.partition("\n## Steps per second")
    found = re.findall(r"(?m)^\| (.*?) \| (.*?) \(.*\| (?:missed|undecided) \|$", rest)
    return [name for name, ratio in found if f"| {name} | {ratio} |" not in summary]


def test_the_page_names_every_bar_that_is_not_met_first_and_has_one_environment() -> None:
    page = read("docs/results.md")
    assert missing_from_summary(page) == []
    assert page.count("<details>") == page.count("| versions.jax |") == 1
    assert f"## {OTHER.title}" not in page
    heads = re.findall(r"(?m)^## (.*?)(?:: .*)?$", page)
    assert len(heads) == len(set(heads))
    assert {subject.title for subject in SUBJECTS} <= set(heads)


@pytest.mark.parametrize("outcome", ["missed", "undecided"])
def test_a_bar_that_the_summary_leaves_out_is_found(outcome: str) -> None:
    page = read("docs/results.md")
    line = next(line for line in page.splitlines() if line.endswith(f"| {outcome} |"))
    name = line.split(" | ")[0].removeprefix("| ")
    summary, steps, rest = page.partition("\n## Steps per second")
    shorter = "\n".join(one for one in summary.splitlines() if not one.startswith(f"| {name} |"))
    assert name in missing_from_summary(shorter + steps + rest)
