"""Benchmarks as SVG: intervals of ratios beside their bars, box plots of times, and growth of a cost with a size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from parity.report.html.scales import Scale, linear, logarithmic, spanning
from parity.report.html.svg import Chart, Plot, picture
from parity.report.words import exact
from parity.results import Growth, Ratio

__all__ = ["box", "growth_chart", "growth_rows", "ratio_scale", "spread", "spread_axis", "time_scale"]

WIDTH, HEIGHT, PAD = 240, 22, 14
"""Of a spread, in units of the drawing."""

SPAN = 20.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""

SAMPLES = 48
"""Places at which a fitted line is drawn: on logarithmic axes it is bent."""

_TIMES = ("min", "ld15iqr", "q1", "median", "q3", "hd15iqr", "max")
"""Of the times of a benchmark, those that a box plot shows."""


def ratio_scale(ratios: Sequence[Ratio]) -> Scale:
    """Return the scale that ratios share; 1 is always on it."""
    values = [1.0, *(x for r in ratios for x in (*_ends(r), r.median, r.bar) if x is not None)]
    return spanning(values, SPAN)


def spread_axis(scale: Scale, name: str = "ratio") -> str:
    """Return the axis of a column of spreads or boxes.

    Args:
        scale: The scale that all of the column share.
        name: What the axis shows, for screen readers and as its tooltip.
    """
    labels = "".join(
        f'<text class="tick" x="{_across(scale, value):.1f}" y="14" text-anchor="middle">{label}</text>'
        for value, label in scale.ticks
    )
    return picture(labels, WIDTH, HEIGHT, name, "spread")


def spread(ratio: Ratio, scale: Scale) -> str:
    """Return the median as a dot, the 95 % interval as a line through it, the bar as an upright one.

    Args:
        ratio: A ratio; without an interval, its quartiles are drawn.
        scale: The scale that all ratios of a column share.
    """
    middle, one = HEIGHT / 2, _across(scale, 1.0)
    ends, median = _ends(ratio), _across(scale, ratio.median)
    low, high = (_across(scale, value) for value in ends)
    name = "quartiles" if ratio.interval is None else "95 % interval"
    title = f"median {exact(ratio.median)}, {name} {exact(ends[0])} to {exact(ends[1])}"
    parts = [f'<line class="one" x1="{one:.1f}" y1="0" x2="{one:.1f}" y2="{HEIGHT}"/>']
    if ratio.bar is not None:
        bar = _across(scale, ratio.bar)
        tip = 6 if ratio.better == "higher" else -6  # points to where it should lie
        parts.append(f'<path class="bar" d="M{bar:.1f} 2v18M{bar:.1f} 3l{tip} 3l{-tip} 3"/>')
        title += f", bar {exact(ratio.bar)}"
    kind = ratio.outcome or "met"
    parts.append(f'<line class="interval {kind}" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>')
    parts.append(_dot(kind, median, middle))
    return picture("".join(parts), WIDTH, HEIGHT, title, "spread")


def _dot(kind: str, x: float, y: float) -> str:
    """Return a full dot; a cross where the bar is missed, a ring where it is undecided: seen without colour."""
    if kind == "undecided":
        return f'<circle class="median undecided" cx="{x:.1f}" cy="{y}" r="4"/>'
    if kind == "missed":
        return f'<path class="median missed" d="M{x - 4:.1f} {y - 4}l8 8m0 -8l-8 8"/>'
    return f'<circle class="median" cx="{x:.1f}" cy="{y}" r="4"/>'


def _ends(ratio: Ratio) -> tuple[float, float]:
    """Return the interval of a ratio, or its quartiles where it has none."""
    return ratio.interval or (ratio.q1, ratio.q3)


def time_scale(rows: Sequence[Mapping[str, float]]) -> Scale:
    """Return the scale that the times of the arms of a test share."""
    return spanning([value for row in rows for name, value in row.items() if name in _TIMES], SPAN)


def box(seconds: Mapping[str, float], scale: Scale) -> str:
    """Return the times of an arm as a box plot in Tukey's way, as pytest-benchmark draws its histograms.

    The box lies between the quartiles with the median in it, the whiskers end at the last rounds within 1.5
    interquartile ranges of the box (at the extremes where the file does not name them), and rings mark the extremes
    beyond.

    Args:
        seconds: `min`, `q1`, `median`, `q3`, `max`, perhaps `ld15iqr` and `hd15iqr`, as pytest-benchmark has them.
        scale: The scale that the arms of a test share.
    """
    middle = HEIGHT / 2
    low, high = seconds.get("ld15iqr", seconds["min"]), seconds.get("hd15iqr", seconds["max"])
    places = {name: _across(scale, value) for name, value in seconds.items() if name in _TIMES}
    left, right = _across(scale, low), _across(scale, high)
    title = ", ".join(f"{name} {exact(seconds[name])}" for name in ("min", "q1", "median", "q3", "max")) + " seconds"
    parts = [
        f'<path class="whisker" d="M{left:.1f} {middle}H{right:.1f}{_upright(left)}{_upright(right)}"/>',
        f'<rect class="box" x="{places["q1"]:.1f}" y="{middle - 6}" '
        f'width="{max(1.0, places["q3"] - places["q1"]):.1f}" height="12"/>',
        f'<path class="middle" d="M{places["median"]:.1f} {middle - 6}v12"/>',
    ]
    for name, end in (("min", low), ("max", high)):
        if seconds[name] != end:
            parts.append(f'<circle class="outlier" cx="{places[name]:.1f}" cy="{middle}" r="2.5"/>')
    return picture("".join(parts), WIDTH, HEIGHT, title, "spread")


def _upright(x: float) -> str:
    return f"M{x:.1f} {HEIGHT / 2 - 4}v8"


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
