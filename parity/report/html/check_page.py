"""A result of checks as an HTML page: verdicts, charts, what was lost, specs and environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from parity.report.html.charts import Figure, figures
from parity.report.html.page import Html, details, environment, page, table, text
from parity.report.html.svg import draw, swatch, verdict_icon
from parity.report.words import CRITERIA, HEADLINES, HEADS, clean, counts, meaning, row, short, sides
from parity.results import CheckRecord, Curves, overall

__all__ = ["check_page"]

MOST_NOTES = 50
"""Notes of one check that are shown."""


def check_page(records: Sequence[CheckRecord], environment_of: Mapping[str, Any]) -> Html:
    """Return the page of some check records and of the environment they were made in."""
    verdict = overall(records)
    seconds = sum(record.seconds for record in records)
    tally = f"{len(records)} checks in {seconds:.0f} s: {counts(records)}" if records else "no checks"
    body = [
        f'<header class="{verdict}"><p class="kicker">parity check</p>'
        f"<h1>{verdict_icon(verdict)}<span>{verdict}</span></h1>"
        f'<p class="lead">{escape(HEADLINES[verdict])}</p><p class="quiet">{escape(tally)}</p></header>',
        _overview(records),
    ]
    numbered = list(enumerate(records, 1))
    specs = _specs(records)
    for (spec, precision), group in groupby(numbered, key=lambda pair: (pair[1].spec, pair[1].precision)):
        body.append(f'<h2 class="group">{text(spec)} <span>{text(precision)}</span></h2>')
        body += [_check(number, record, specs) for number, record in group]
    body += [environment(environment_of), _spec_section(specs)]
    return page(f"parity check: {verdict}", [part for part in body if part])


def _overview(records: Sequence[CheckRecord]) -> Html:
    if not records:
        return ""
    heads = ("verdict", *(head for head in HEADS[:-1] if head != "verdict"), "s")
    rows = []
    for number, record in enumerate(records, 1):
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
    return f'<section id="overview">{table(heads, rows, kind="overview")}</section>'


def _check(number: int, record: CheckRecord, specs: Mapping[str, int]) -> Html:
    verdict = record.verdict
    return "\n".join(
        part
        for part in (
            f'<section class="check {verdict}" id="check-{number}">',
            f'<h3><span class="verdict {verdict}">{verdict_icon(verdict)}{verdict}</span>'
            f'{text(record.name.partition(" ")[0])} <span class="sides">{text(sides(record))}</span></h3>',
            f'<p class="lead">{escape(meaning(record))}</p>',
            _lost(record) if verdict != "holds" else "",
            _facts(record),
            _figures(record),
            _notes(record) if verdict == "holds" else "",
            _digests(record, specs),
            "</section>",
        )
        if part
    )


def _lost(record: CheckRecord) -> Html:
    """Return what was lost, and where it shows first."""
    out = []
    if record.suspects:
        names = "".join(f"<li><code>{text(name)}</code></li>" for name in record.suspects[:MOST_NOTES])
        out.append(f'<h4>Suspects, the likeliest first</h4><ol class="suspects">{names}</ol>')
    first = record.first_divergence
    if first is not None:
        out.append(
            f"<p>First divergence: step <b>{first.step}</b>, {text(first.quantity)}: "
            f"<code>{text(first.expected)}</code> became <code>{text(first.got)}</code></p>"
        )
    return f'<div class="lost">{"".join(out)}{_notes(record)}</div>'


def _notes(record: CheckRecord) -> Html:
    if not record.notes:
        return ""
    shown = "".join(f"<li>{text(note)}</li>" for note in record.notes[:MOST_NOTES])
    rest = len(record.notes) - MOST_NOTES
    return f'<ul class="notes">{shown}{f"<li>and {rest} more</li>" if rest > 0 else ""}</ul>'


def _facts(record: CheckRecord) -> Html:
    found = [
        ("criterion", record.criterion),
        ("steps compared", str(record.steps_compared)),
        ("largest difference", short(record.max_abs_diff)),
        ("relative", short(record.max_rel_diff)),
        ("times the envelope", short(record.envelope_multiple)),
        ("seconds", f"{record.seconds:.1f}"),
    ]
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in found if v)
        + "</dl>"
    )


def _figures(record: CheckRecord) -> Html:
    curves = record.curves
    if curves is None or not curves.steps:
        return ""
    drawn = [_figure(figure, large=number < 2) for number, figure in enumerate(figures(record))]
    thinned = ""
    if len(curves.steps) < curves.total:
        thinned = (
            f'<p class="quiet">{len(curves.steps)} of {curves.total} steps are shown: the first, the last, the first '
            "that differs, kills and resumes, and of every stretch the extremes.</p>"
        )
    return f'{_legend(record, curves)}<div class="charts">{"".join(drawn)}</div>{thinned}'


def _legend(record: CheckRecord, curves: Curves) -> Html:
    """Return what the lines, bands and marks of a check stand for, those that occur."""
    named: list[tuple[str, str]] = [("reference", curves.labels[0]), ("other", curves.labels[1])]
    named += [
        (kind, label)
        for kind, label, there in (
            ("allowed", "what passes", curves.allowed is not None),
            ("envelope", "measured envelope", curves.envelope is not None),
            ("kill", "killed", bool(curves.kills)),
            ("resume", "resumed from", bool(curves.resumes)),
            ("handover", "handed over", bool(curves.handovers)),
            ("first", "first divergence", record.first_divergence is not None),
            ("skipped", "skipped step", bool(curves.skipped)),
            ("nonfinite", "not finite", _any_infinite(curves)),
        )
        if there
    ]
    return '<ul class="legend">' + "".join(f"<li>{swatch(k)}{text(label)}</li>" for k, label in named) + "</ul>"


def _any_infinite(curves: Curves) -> bool:
    series = (*curves.loss, *curves.grad_norm, curves.difference)
    return any(value is not None and not math.isfinite(value) for values in series for value in values)


def _figure(figure: Figure, *, large: bool) -> Html:
    title = figure.chart.title.partition(":")[0]
    caption = f'<span class="quiet">{text(figure.caption)}</span>' if figure.caption else ""
    rows = ([escape(clean(cell)) for cell in row] for row in figure.rows)
    return (
        f'<figure class="{"large" if large else "small"}"><figcaption><b>{text(title)}</b>{caption}</figcaption>'
        f"{draw(figure.chart)}{details('figures', table(figure.heads, rows, kind='figures'))}</figure>"
    )


def _digests(record: CheckRecord, specs: Mapping[str, int]) -> Html:
    rows = [(text(name), f"<code>{text(digest)}</code>") for name, digest in record.digests.items()]
    if record.resolved is not None:
        link = f'<a href="#spec-{specs[record.resolved.toml]}"><code>{text(record.resolved.hash)}</code></a>'
        rows.insert(0, ("spec", link))
    return details("spec and digests", table(("of", "digest"), rows, kind="digests")) if rows else ""


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
        parts.append(f'<h4 id="spec-{number}">Spec {number}</h4><pre>{lines}</pre>')
    return f'<section id="specs"><h2>Specs</h2>{"".join(parts)}</section>'


def _line(line: str) -> str:
    """Return a line of TOML with its indent."""
    return " " * (len(line) - len(line.lstrip(" "))) + clean(line)
