"""A file of benchmarks as an HTML page: steps per second and ratios first, then each test with its times."""

from __future__ import annotations

from html import escape
from itertools import groupby

from parity.report.bench_names import arm_name, bench_name, title_of
from parity.report.bench_speeds import MODELS, SPEED_HEADS, SpeedRow, speed_rows
from parity.report.bench_words import (
    bench_outcome,
    bench_verdict,
    bench_words,
    spread_words,
    summary,
    surroundings,
)
from parity.report.html.bench_charts import (
    box,
    growth_chart,
    growth_rows,
    ratio_scale,
    spread,
    spread_axis,
    time_scale,
)
from parity.report.html.page import BACK, Html, contents, details, environment, page, table, text
from parity.report.html.speed_chart import speed_panel
from parity.report.html.svg import draw, verdict_icon
from parity.report.words import exact, flatten
from parity.results import BarOutcome, Benchmark, BenchmarkFile, Growth, Ratio, Verdict

__all__ = ["bench_page"]

LEGEND = (
    "Dot: median of the ratios of the rounds; a cross where it misses its bar, a ring where it is undecided. Line: "
    "the 95 % interval of that median (the quartiles, in files of before). Upright line with a flag: the bar; the "
    "flag points to the side that is better. A bar is met or missed where the whole interval lies on one side of it."
)

BOXES = (
    "Times are recorded, never judged. Box: quartiles, with the median. Whiskers: the last rounds within 1.5 "
    "interquartile ranges of the box. Rings: the shortest and the longest round, where they lie beyond."
)

_VERDICTS: dict[BarOutcome, Verdict] = {"met": "holds", "missed": "broken", "undecided": "inconclusive"}
"""What a ratio comes to, to the verdict whose shape and colour it has."""


def bench_page(file: BenchmarkFile) -> Html:
    """Return the page of a file of benchmarks."""
    verdict, outcome, speeds = bench_verdict(file), bench_outcome(file), speed_rows([file])
    groups = [
        (group, list(members)) for group, members in groupby(file.benchmarks, key=lambda benchmark: benchmark.group)
    ]
    ratios = [(benchmark, ratio) for benchmark in file.benchmarks for ratio in benchmark.ratios]
    links = [("speeds", "Steps per second")] if speeds else []
    links += [("ratios", "Ratios")] if ratios else []
    links += [(f"test-{n}", title_of(group or "benchmarks")) for n, (group, _) in enumerate(groups, 1)]
    body = [
        f'<header id="top" class="{verdict}"><p class="kicker">parity bench</p>'
        f"<h1>{verdict_icon(verdict)}<span>{outcome}</span></h1>"
        f'<p class="lead">{escape(bench_words(file))}</p><p class="quiet">{text(file.measured)}</p></header>',
        contents([*links, ("environment", "Environment")]),
        _speeds(speeds) if speeds else "",
        _overview(ratios) if ratios else "",
        f'<p class="note">{BOXES}</p>' if groups else "",
        *(_group(number, group, members) for number, (group, members) in enumerate(groups, 1)),
        environment(surroundings(file)),
    ]
    return page(f"parity bench: {outcome}", [part for part in body if part])


def _speeds(rows: list[SpeedRow]) -> Html:
    """Return the steps per second: bars for each model, and the table of their figures."""
    measured = [n for n, _ in enumerate(MODELS) if any(row.speeds[n] is not None for row in rows)]
    panels = "".join(f"<figure>{speed_panel(rows, MODELS[n])}</figure>" for n in measured)
    cells = table(SPEED_HEADS, [tuple(map(text, row.cells)) for row in rows], kind="speeds stacked")
    shown = details("figures, with the time for 1,000 steps", cells)
    return f'<section id="speeds"><h2>Steps per second</h2><div class="panels">{panels}</div>{shown}</section>'


def _overview(ratios: list[tuple[Benchmark, Ratio]]) -> Html:
    """Return all ratios on one scale, those that miss their bar first."""
    order = {"missed": 0, "undecided": 1, "met": 2, None: 3}
    ranked = sorted(ratios, key=lambda pair: order[pair[1].outcome])
    scale = ratio_scale([ratio for _, ratio in ratios])
    heads = ("benchmark", "ratio", "", "median", "95 % interval", "rounds", "bar", "")
    axis = ("", "", spread_axis(scale), *[""] * 5)
    rows = [
        (
            text(bench_name(benchmark)),
            f"{text(ratio.name)} <span class='quiet'>{text(ratio.of)}</span>",
            spread(ratio, scale),
            f"{ratio.median:.4g}",
            escape(spread_words(ratio)),
            str(ratio.rounds),
            escape(summary(ratio)),
            _outcome(ratio),
        )
        for benchmark, ratio in ranked
    ]
    return (
        f'<section id="ratios"><h2>Ratios</h2><p class="note">{LEGEND}</p>'
        f"{table(heads, [axis, *rows], kind='ratios stacked')}{BACK}</section>"
    )


def _outcome(ratio: Ratio) -> Html:
    if ratio.outcome is None:
        return '<span class="quiet">no bar</span>'
    verdict = _VERDICTS[ratio.outcome]
    return f'<span class="verdict {verdict}">{verdict_icon(verdict)}{ratio.outcome}</span>'


def _group(number: int, group: str | None, members: list[Benchmark]) -> Html:
    title = title_of(group or "benchmarks")
    parts = [f'<section class="benchmarks" id="test-{number}"><h2 class="group">{text(title)}</h2>', _times(members)]
    growths = [growth for benchmark in members for growth in benchmark.growth]
    if growths:
        parts.append(f'<div class="charts">{"".join(_growth(growth) for growth in growths)}</div>')
    info = [(arm_name(one), name, value) for one in members for name, value in flatten(one.info)]
    if info:
        rows = [(text(name), f"<code>{text(key)}</code>", text(value)) for name, key, value in info]
        parts.append(details("further notes", table(("benchmark", "what", "value"), rows, kind="facts")))
    return "\n".join([*parts, BACK, "</section>"])


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
    """Return the times of the arms of a test: a box plot on one scale, then the figures."""
    names = ("min", "q1", "median", "q3", "max")
    scale = time_scale([one.seconds for one in members])
    axis = ("", spread_axis(scale, "seconds"), *[""] * (len(names) + 2))
    rows = [
        (
            text(arm_name(one)),
            box(one.seconds, scale),
            *(f"{one.seconds[name]:.4g}" for name in names),
            f"{one.seconds['rounds']:.0f}",
            "" if one.steps_per_second is None else f"{one.steps_per_second:,.4g}",
        )
        for one in members
    ]
    heads = ("arm", "", *(f"{name} (s)" for name in names), "rounds", "steps per second")
    return table(heads, [axis, *rows], kind="times stacked")
