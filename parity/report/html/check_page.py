"""A result of checks as an HTML page: the verdict, what fails, then every check, specs and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from parity.report.html.check_section import Shared, check_section, check_title
from parity.report.html.page import BACK, Html, contents, environment, page, table, text
from parity.report.html.svg import verdict_icon
from parity.report.html.terms import terms_of_overview
from parity.report.words import CRITERIA, HEADLINES, HEADS, clean, counts, duration, number_of_checks, row
from parity.results import VERDICTS, CheckRecord, overall

__all__ = ["check_page"]

Numbered = tuple[int, CheckRecord]
"""A check and its number in the result, by which links name it."""


def check_page(records: Sequence[CheckRecord], environment_of: Mapping[str, Any]) -> Html:
    """Return the page of some check records and of the environment they were made in.

    Args:
        records: The checks, in the order in which they ran.
        environment_of: As in the JSON document of the checks; of files of before it lacks time, command and version.
    """
    verdict = overall(records)
    seconds = duration(records, environment_of)
    tally = f"{number_of_checks(len(records))} in {seconds:.0f} s: {counts(records)}" if records else "no checks"
    numbered = list(enumerate(records, 1))
    ranked = sorted(numbered, key=lambda pair: VERDICTS.index(pair[1].verdict))
    failing = [pair for pair in ranked if pair[1].verdict != "holds"]
    shared = Shared(specs=_specs(records))
    groups = [
        (f"{spec} {precision}", list(pairs))
        for (spec, precision), pairs in groupby(
            (pair for pair in numbered if pair[1].verdict == "holds"),
            key=lambda pair: (pair[1].spec, pair[1].precision),
        )
    ]
    body = [
        f'<header id="top" class="{verdict}"><p class="kicker">parity check</p>'
        f"<h1>{verdict_icon(verdict)}<span>{verdict}</span></h1>"
        f'<p class="lead">{escape(HEADLINES[verdict])}</p><p class="quiet">{escape(tally)}</p>'
        f"{_origin(environment_of)}</header>",
        contents(_links(failing, groups, records, shared)),
        _overview(ranked, "" if failing else terms_of_overview()),
        _section("failing", "Checks that do not hold", failing, shared) + terms_of_overview() if failing else "",
        *(_section(f"group-{n}", name, pairs, shared) for n, (name, pairs) in enumerate(groups, 1)),
        environment(environment_of),
        _spec_section(shared.specs),
    ]
    return page(f"parity check: {verdict}", [part for part in body if part])


def _origin(values: Mapping[str, Any]) -> Html:
    """Return when, by which command and by which version the result was made."""
    commit = values.get("commit")
    if commit:
        code = f"commit {commit}{', with uncommitted changes' if values.get('dirty') else ''}"
    else:
        version = values.get("version")
        code = f"parity-suite {version}, installed" if version else "an installed package"
    found = [("date", values.get("time")), ("command", values.get("command")), ("version", code)]
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{text(value) if value else 'not recorded'}</dd></div>" for name, value in found
    )
    return f'<dl class="facts">{shown}</dl>'


def _links(
    failing: Sequence[Numbered],
    groups: Sequence[tuple[str, Sequence[Numbered]]],
    records: Sequence[CheckRecord],
    shared: Shared,
) -> list[tuple[str, str]]:
    """Return the places of the page: failing checks one by one, the others by their spec."""
    links = [("overview", "Overview")] if records else []
    links += [(f"check-{number}", f"{record.verdict}: {check_title(record)}") for number, record in failing]
    links += [(f"group-{n}", f"{name}: {_count(len(pairs))}") for n, (name, pairs) in enumerate(groups, 1)]
    return [*links, ("environment", "Environment"), *([("specs", "Specs")] if shared.specs else [])]


def _count(number: int) -> str:
    return "1 check holds" if number == 1 else f"{number} checks hold"


def _section(place: str, name: str, pairs: Sequence[Numbered], shared: Shared) -> Html:
    inside = "\n".join(check_section(number, record, shared) for number, record in pairs)
    return f'<section id="{place}"><h2 class="group">{text(name)}</h2>{inside}</section>'


def _overview(ranked: Sequence[Numbered], terms: Html) -> Html:
    """Return the table of verdicts, the worst first, then the terms: where something fails, they come after that."""
    if not ranked:
        return ""
    heads = ("verdict", *(head for head in HEADS[:-1] if head != "verdict"), "s")
    rows = []
    for number, record in ranked:
        name, spec, precision, sides_of, verdict, criterion, *figures_of = row(record)
        rows.append(
            (
                f'<span class="verdict {verdict}">{verdict_icon(record.verdict)}{verdict}</span>',
                f'<a href="#check-{number}">{text(name)}</a>',
                *(text(cell) for cell in (spec, precision, sides_of)),
                f'<span title="{escape(CRITERIA[criterion])}">{criterion}</span>',
                *figures_of,
            )
        )
    shown = table(heads, rows, kind="overview", label="overview: every check and its verdict")
    return f'<section id="overview"><h2>Overview</h2>{shown}{terms}</section>'


def _specs(records: Sequence[CheckRecord]) -> dict[str, int]:
    """Return every resolved spec, once, and its number on the page."""
    texts = dict.fromkeys(record.resolved.toml for record in records if record.resolved is not None)
    return {toml: number for number, toml in enumerate(texts, 1)}


def _spec_section(specs: Mapping[str, int]) -> Html:
    if not specs:
        return ""
    parts = []
    for toml, number in specs.items():
        lines = "\n".join(escape(clean_line) for clean_line in (_line(line) for line in toml.splitlines()))
        parts.append(
            f'<h4 id="spec-{number}">Spec {number}</h4>'
            f'<pre tabindex="0" role="region" aria-label="spec {number}">{lines}</pre>'
        )
    return f'<section id="specs"><h2>Specs</h2>{"".join(parts)}{BACK}</section>'


def _line(line: str) -> str:
    """Return a line of TOML with its indent."""
    return " " * (len(line) - len(line.lstrip(" "))) + clean(line)
