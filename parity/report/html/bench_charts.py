"""Benchmarks as SVG: the spread of a ratio beside its bar, and how a cost grows with a size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parity.report.html.scales import Scale, linear, logarithmic, spanning
from parity.report.html.svg import Chart, Plot
from parity.report.words import exact
from parity.results import Growth, Ratio

__all__ = ["growth_chart", "growth_rows", "ratio_scale", "spread", "spread_axis"]

WIDTH, HEIGHT, PAD = 240, 22, 14
"""Of a spread, in units of the drawing."""

SPAN = 20.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""

SAMPLES = 48
"""Places at which a fitted line is drawn: on logarithmic axes it is bent."""

_SVG = '<svg xmlns="http://www.w3.org/2000/svg" class="spread"'


def ratio_scale(ratios: Sequence[Ratio]) -> Scale:
    """Return the scale that ratios share; 1 is always on it."""
    values = [1.0, *(x for r in ratios for x in (r.q1, r.median, r.q3, r.bar) if x is not None)]
    return spanning(values, SPAN)


def spread_axis(scale: Scale) -> str:
    """Return the axis of a column of spreads."""
    labels = "".join(
        f'<text class="tick" x="{_across(scale, value):.1f}" y="14" text-anchor="middle">{label}</text>'
        for value, label in scale.ticks
    )
    return f'{_SVG} viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="ratio"><title>ratio</title>{labels}</svg>'


def spread(ratio: Ratio, scale: Scale) -> str:
    """Return the median as a dot, the quartiles as a line through it, the bar as an upright one."""
    middle, one = HEIGHT / 2, _across(scale, 1.0)
    q1, median, q3 = (_across(scale, value) for value in (ratio.q1, ratio.median, ratio.q3))
    title = f"median {exact(ratio.median)}, quartiles {exact(ratio.q1)} and {exact(ratio.q3)}"
    parts = [f'<line class="one" x1="{one:.1f}" y1="0" x2="{one:.1f}" y2="{HEIGHT}"/>']
    if ratio.bar is not None:
        bar = _across(scale, ratio.bar)
        tip = 6 if ratio.better == "higher" else -6  # points to where it should lie
        parts.append(f'<path class="bar" d="M{bar:.1f} 2v18M{bar:.1f} 3l{tip} 3l{-tip} 3"/>')
        title += f", bar {exact(ratio.bar)}"
    kind = "missed" if ratio.met is False else "met"
    parts.append(f'<line class="quartiles {kind}" x1="{q1:.1f}" y1="{middle}" x2="{q3:.1f}" y2="{middle}"/>')
    parts.append(_dot(kind, median, middle))
    return (
        f'{_SVG} viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
        f"{''.join(parts)}</svg>"
    )


def _dot(kind: str, x: float, y: float) -> str:
    """Return a full dot; one that misses its bar is a cross, so that it can be seen without colour."""
    if kind == "missed":
        return f'<path class="median missed" d="M{x - 4:.1f} {y - 4}l8 8m0 -8l-8 8"/>'
    return f'<circle class="median" cx="{x:.1f}" cy="{y}" r="4"/>'


def growth_chart(growth: Growth) -> Chart:
    """Return points and the straight line through them, on logarithmic axes where they span much."""
    xs, ys = [x for x, _ in growth.points], [y for _, y in growth.points]
    across = spanning(xs, SPAN)
    places = sorted({*xs, *_between(min(xs), max(xs), across)})
    costs = dict(growth.points)
    fit = tuple(growth.slope * x + growth.intercept for x in places)
    shown: tuple[float | None, ...] = fit
    if spanning(ys, SPAN).kind == "log":  # the line may fall below 0 before the smallest point
        shown = tuple(y if min(ys) / 2 <= y < math.inf else None for y in fit)
        scale = logarithmic([*ys, *(y for y in shown if y is not None)])
    else:
        scale = linear([*ys, *fit])
    return Chart(
        title=growth.name,
        steps=tuple(places),
        plots=(
            Plot(kind="fit", label="fit", values=shown),
            Plot(kind="points", label="measured", values=tuple(costs.get(x) for x in places), dotted=True),
        ),
        scale=scale,
        across=across,
        name="",
        width=520,
        height=230,
    )


def growth_rows(growth: Growth) -> list[tuple[str, str]]:
    """Return the points as figures."""
    return [(exact(x), exact(y)) for x, y in growth.points]


def _between(low: float, high: float, scale: Scale) -> list[float]:
    """Return places evenly along an axis."""
    if scale.kind == "log":
        return [low * (high / low) ** (n / SAMPLES) for n in range(1, SAMPLES)]
    return [low + (high - low) * n / SAMPLES for n in range(1, SAMPLES)]


def _across(scale: Scale, value: float) -> float:
    return PAD + scale.place(value) * (WIDTH - 2 * PAD)
