"""One check on the page: its verdict, what was lost, its charts with their figures, cases and digests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from parity.report.html.charts import figures
from parity.report.html.figure_table import FigureTable, tabulate
from parity.report.html.page import BACK, Html, details, table, text
from parity.report.html.svg import Chart, Shapes, draw, swatch, verdict_icon
from parity.report.html.terms import terms_of_findings
from parity.report.words import CRITERIA, clean, meaning, short, sides
from parity.results import CaseOutcome, CheckRecord, Curves, LeafChange

__all__ = ["Shared", "check_section", "check_title"]

MOST_NOTES = 50
"""Notes of one check that are shown."""

MOST_LEAVES = 100
"""Leaves of one check that are shown."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the sections of a page share: each is written once, where it stands first, and then referred to."""

    specs: Mapping[str, int]
    """Resolved specs and their numbers on the page."""
    shapes: Shapes = field(default_factory=Shapes)
    columns: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, str]] = field(default_factory=dict)
    """Steps and figures of a column that was written, to the identifier of its table and its head."""
    cases: dict[tuple[CaseOutcome, ...], str] = field(default_factory=dict)
    """Cases that were written to the identifier of their table."""


def check_title(record: CheckRecord) -> str:
    """Return the name of a check with its spec and sides."""
    return f"{record.name.partition(' ')[0]} {record.spec} {record.precision} ({sides(record)})"


def check_section(number: int, record: CheckRecord, shared: Shared) -> Html:
    """Return the section of a check, which has the identifier `check-<number>`.

    Args:
        number: Number of the check on the page.
        record: The check.
        shared: What the sections before it wrote; this one adds its own columns and cases.
    """
    verdict = record.verdict
    return "\n".join(
        part
        for part in (
            f'<section class="check {verdict}" id="check-{number}">',
            f'<h3><span class="verdict {verdict}">{verdict_icon(verdict)}{verdict}</span>'
            f'{text(record.name.partition(" ")[0])} <span class="sides">{text(sides(record))}</span> '
            f'<span class="sides">{text(record.spec)} {text(record.precision)}</span></h3>',
            f'<p class="lead">{escape(meaning(record))}</p>',
            _lost(record) if verdict != "holds" else "",
            _facts(record),
            _figures(number, record, shared),
            _cases(number, record.cases, shared),
            _notes(record) if verdict == "holds" else "",
            _digests(record, shared.specs),
            BACK,
            "</section>",
        )
        if part
    )


def _lost(record: CheckRecord) -> Html:
    """Return what was lost, where it shows first, and by how much."""
    out = []
    if record.suspects:
        names = "".join(_suspect(name, record.advice.get(name, "")) for name in record.suspects[:MOST_NOTES])
        out.append(f'<h4>Suspects, the likeliest first</h4><ol class="suspects">{names}</ol>')
    first = record.first_divergence
    if first is not None:
        out.append(
            f"<p>First divergence: step <b>{first.step}</b>, {text(first.quantity)}: "
            f"<code>{text(first.expected)}</code> became <code>{text(first.got)}</code></p>"
        )
    terms = terms_of_findings() if record.suspects or first is not None else ""
    return f'<div class="lost">{"".join(out)}{_notes(record)}{_leaves(record.leaves)}{terms}</div>'


def _suspect(name: str, advice: str) -> Html:
    """Return a component that was lost, with what to change where that is known."""
    said = f' <span class="advice">{text(advice)}</span>' if advice else ""
    return f"<li><code>{text(name)}</code>{said}</li>"


def _notes(record: CheckRecord) -> Html:
    if not record.notes:
        return ""
    shown = "".join(f"<li>{text(note)}</li>" for note in record.notes[:MOST_NOTES])
    rest = len(record.notes) - MOST_NOTES
    return f'<ul class="notes">{shown}{f"<li>and {rest} more</li>" if rest > 0 else ""}</ul>'


def _leaves(leaves: tuple[LeafChange, ...]) -> Html:
    """Return the leaves that differ, and the size of the difference where their values were kept."""
    if not leaves:
        return ""
    heads = ("leaf", "elements that differ", "largest difference", "relative", "what", "where")
    rows = [
        (
            f"<code>{text(leaf.leaf)}</code>",
            "not kept" if leaf.differing is None else f"{leaf.differing:,} of {leaf.elements or 0:,}",
            escape(short(leaf.max_abs)),
            escape(short(leaf.max_rel)),
            text(leaf.detail),
            text(leaf.where),
        )
        for leaf in leaves[:MOST_LEAVES]
    ]
    rest = len(leaves) - MOST_LEAVES
    more = f"<p>and {rest} more leaves</p>" if rest > 0 else ""
    return f"<h4>Leaves that differ</h4>{table(heads, rows, kind='leaves stacked')}{more}"


def _facts(record: CheckRecord) -> Html:
    found = [
        ("criterion", CRITERIA[record.criterion]),
        ("steps compared", str(record.steps_compared)),
        ("largest difference of the loss", short(record.max_abs_diff)),
        ("relative to the loss", short(record.max_rel_diff)),
        ("multiple of the envelope that would have passed", short(record.envelope_multiple)),
        ("seconds", f"{record.seconds:.1f}"),
    ]
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in found if v)
        + "</dl>"
    )


def _figures(number: int, record: CheckRecord, shared: Shared) -> Html:
    curves = record.curves
    if curves is None or not curves.steps:
        return ""
    drawn = [_figure(chart, shared.shapes, large=n < 2) for n, chart in enumerate(figures(record))]
    thinned = ""
    if len(curves.steps) < curves.total:
        thinned = (
            f'<p class="quiet">{len(curves.steps)} of {curves.total} steps are shown: the first, the last, the first '
            "that differs, kills and resumes, and of every stretch the extremes.</p>"
        )
    tables = enumerate(tabulate(curves), 1)
    shown = "".join(_table(f"check-{number}-figures-{n}", one, shared) for n, one in tables)
    return (
        f'{_legend(record, curves)}<div class="charts">{"".join(drawn)}</div>{thinned}'
        f"{details('figures of these charts', shown)}"
    )


def _table(place: str, figures_of: FigureTable, shared: Shared) -> Html:
    """Return a table of figures; a column that stands on the page already is a link to where."""
    said = [
        f"{text(name)}: <code>{escape(clean(value))}</code> at every step" for name, value in figures_of.constants
    ]
    kept = []
    for head, cells in figures_of.columns:
        known = shared.columns.setdefault((figures_of.steps, cells), (place, head))
        if known[0] == place:
            kept.append((head, cells))
        else:
            said.append(f'{text(head)}: the figures of <a href="#{known[0]}">{text(known[1])}</a>')
    listed = f'<ul class="constants"><li>{"</li><li>".join(said)}</li></ul>' if said else ""
    lines = zip(figures_of.steps, *(cells for _, cells in kept), strict=True)
    rows = ([escape(clean(cell)) for cell in line] for line in lines)
    shown = table(("step", *(head for head, _ in kept)), rows, kind="figures") if kept else ""
    return f'<section id="{place}">{listed}{shown}</section>'


def _cases(number: int, cases: tuple[CaseOutcome, ...], shared: Shared) -> Html:
    """Return the cases of a policy check, those that do not hold first."""
    if not cases:
        return ""
    failed = [case for case in cases if case.found]
    events = sum(case.events for case in cases)
    said = f"{len(cases)} cases, {events} events: {len(cases) - len(failed)} hold, {len(failed)} do not"
    place, known = f"check-{number}-cases", shared.cases.get(cases)
    if known is not None:
        return f'<p>{said}. <a href="#{known}">The same cases with the same outcomes</a></p>'
    shared.cases[cases] = place
    rows = [
        (
            f'<span class="verdict {verdict}">{verdict_icon(verdict)}{verdict}</span>',
            text(case.rule),
            text(case.name),
            str(case.events),
            text(case.found),
        )
        for case in sorted(cases, key=lambda case: not case.found)
        for verdict in ("broken" if case.found else "holds",)
    ]
    shown = table(("verdict", "rule", "case", "events", "first departure"), rows, kind="cases stacked")
    return f'<div id="{place}">{details(said, shown)}</div>'


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


def _figure(chart: Chart, shapes: Shapes, *, large: bool) -> Html:
    title = chart.title.partition(":")[0]
    caption = f'<span class="quiet">{text(chart.caption)}</span>' if chart.caption else ""
    return (
        f'<figure class="{"large" if large else "small"}"><figcaption><b>{text(title)}</b>{caption}</figcaption>'
        f"{draw(chart, shapes)}</figure>"
    )


def _digests(record: CheckRecord, specs: Mapping[str, int]) -> Html:
    rows = [(text(name), f"<code>{text(digest)}</code>") for name, digest in record.digests.items()]
    if record.resolved is not None:
        link = f'<a href="#spec-{specs[record.resolved.toml]}"><code>{text(record.resolved.hash)}</code></a>'
        rows.insert(0, ("spec", link))
    return details("spec and digests", table(("of", "digest"), rows, kind="digests")) if rows else ""
