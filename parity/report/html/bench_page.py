"""A file of benchmarks as an HTML page: ratios with their spread and bar, growth, and the times."""

from __future__ import annotations

from html import escape
from itertools import groupby

from parity.report.bench_words import OUTCOMES, bench_verdict, bench_words, met, summary, surroundings
from parity.report.html.bench_charts import growth_chart, growth_rows, ratio_scale, spread, spread_axis
from parity.report.html.page import Html, details, environment, page, table, text
from parity.report.html.svg import draw, verdict_icon
from parity.report.words import exact, flatten
from parity.results import Benchmark, BenchmarkFile, Growth, Ratio

__all__ = ["bench_page"]

LEGEND = (
    "Dot: median of the rounds, a cross where it misses its bar. Line: quartiles. Flag: the bar, flying to the side "
    "that is better."
)


def bench_page(file: BenchmarkFile) -> Html:
    """Return the page of a file of benchmarks."""
    verdict = bench_verdict(file)
    body = [
        f'<header class="{verdict}"><p class="kicker">parity bench</p>'
        f"<h1>{verdict_icon(verdict)}<span>{OUTCOMES[verdict]}</span></h1>"
        f'<p class="lead">{escape(bench_words(file))}</p><p class="quiet">{text(file.measured)}</p></header>',
        f'<p class="note">{LEGEND}</p>' if any(benchmark.ratios for benchmark in file.benchmarks) else "",
    ]
    for group, members in groupby(file.benchmarks, key=lambda benchmark: benchmark.group):
        body.append(_group(group, list(members)))
    body.append(environment(surroundings(file)))
    return page(f"parity bench: {OUTCOMES[verdict]}", body)


def _group(group: str | None, members: list[Benchmark]) -> Html:
    parts = [f'<section class="benchmarks"><h2 class="group">{text(group or "benchmarks")}</h2>']
    ratios = [(benchmark, ratio) for benchmark in members for ratio in benchmark.ratios]
    if ratios:
        parts.append(_ratios(ratios))
    growths = [growth for benchmark in members for growth in benchmark.growth]
    if growths:
        parts.append(f'<div class="charts">{"".join(_growth(growth) for growth in growths)}</div>')
    parts.append(details("times: recorded, never judged", _times(members)))
    info = [(benchmark.name, name, value) for benchmark in members for name, value in flatten(benchmark.info)]
    if info:
        rows = [(text(name), f"<code>{text(key)}</code>", text(value)) for name, key, value in info]
        parts.append(details("further notes", table(("benchmark", "what", "value"), rows, kind="facts")))
    return "\n".join([*parts, "</section>"])


def _ratios(ratios: list[tuple[Benchmark, Ratio]]) -> Html:
    """Return one row for each ratio: its spread drawn on a scale that all share, then its figures."""
    scale = ratio_scale([ratio for _, ratio in ratios])
    heads = ("benchmark", "ratio", "", "median", "quartiles", "rounds", "bar", "")
    axis = ("", "", spread_axis(scale), *[""] * 5)
    rows = [
        (
            text(benchmark.name),
            f"{text(ratio.name)} <span class='quiet'>{text(ratio.of)}</span>",
            spread(ratio, scale),
            f"{ratio.median:.4g}",
            f"{ratio.q1:.4g} to {ratio.q3:.4g}",
            str(ratio.rounds),
            escape(summary(ratio)),
            _met(ratio),
        )
        for benchmark, ratio in ratios
    ]
    return f'<div class="ratios">{table(heads, [axis, *rows], kind="ratios")}</div>'


def _met(ratio: Ratio) -> Html:
    if ratio.met is None:
        return '<span class="quiet">no bar</span>'
    verdict = "holds" if ratio.met else "broken"
    return f'<span class="verdict {verdict}">{verdict_icon(verdict)}{met(ratio)}</span>'


def _growth(growth: Growth) -> Html:
    fit = f"slope {growth.slope:.4g}, intercept {growth.intercept:.4g}, r² {growth.r2:.4f}"
    figures = table((growth.x, growth.y), [tuple(map(escape, row)) for row in growth_rows(growth)], kind="figures")
    exactly = [("slope", exact(growth.slope)), ("intercept", exact(growth.intercept)), ("r2", exact(growth.r2))]
    fitted = table(("fit", "value"), [(name, escape(value)) for name, value in exactly], kind="figures")
    return (
        f'<figure class="large"><figcaption><b>{text(growth.name)}</b>'
        f'<span class="quiet">{text(growth.y)} by {text(growth.x)}; {escape(fit)}</span></figcaption>'
        f"{draw(growth_chart(growth))}{details('figures', figures + fitted)}</figure>"
    )


def _times(members: list[Benchmark]) -> Html:
    names = ("min", "q1", "median", "q3", "max")
    rows = [
        (text(b.name), *(f"{b.seconds[name]:.4g}" for name in names), f"{b.seconds['rounds']:.0f}") for b in members
    ]
    return table(("benchmark", *(f"{name} (s)" for name in names), "rounds"), rows, kind="times")
