"""Charts as inline SVG: lines over steps, bands, marks. Positions are drawn, nothing is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from parity.report.html.scales import Scale, linear
from parity.report.words import clean
from parity.results import RecordedSeries

__all__ = ["Chart", "Plot", "Shapes", "StepMark", "draw", "picture", "swatch", "verdict_icon"]

LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 18.0, 26.0
"""Room around the plot for labels and marks."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One line, or one band from minus to plus its values."""

    kind: str
    """`reference`, `other`, `points`; as bands `allowed`, `envelope`: the class in the page's style."""
    label: str
    values: RecordedSeries
    stepped: bool = False
    """Whether a value holds until the next one."""
    dotted: bool = False
    """Whether values are dots, without a line."""

    @property
    def band(self) -> bool:
        """Return whether it is an area."""
        return self.kind in ("allowed", "envelope")


@dataclass(frozen=True, kw_only=True)
class StepMark:
    """A step at which something happened."""

    kind: str
    """`kill`, `resume`, `handover`, `first` (divergence), `skipped`."""
    step: int
    label: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn over steps, or over sizes."""

    title: str
    caption: str = ""
    """What is to be said beside the title; the page shows it, the drawing does not."""
    steps: tuple[float, ...]
    plots: tuple[Plot, ...]
    scale: Scale
    marks: tuple[StepMark, ...] = ()
    across: Scale | None = None
    """The axis of the steps; by default linear, from the first to the last."""
    name: str = "step"
    """Label of that axis."""
    width: int = 340
    height: int = 170


@dataclass(frozen=True)
class _Frame:
    """Where steps and values lie on the drawing."""

    chart: Chart
    across: Scale

    def x(self, step: float) -> float:
        return LEFT + self.across.place(step) * (self.chart.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.bottom - self.chart.scale.place(value) * (self.bottom - TOP)

    @property
    def bottom(self) -> float:
        return self.chart.height - BOTTOM


@dataclass(frozen=True)
class Shapes:
    """The shapes that the charts of a page share: each is written where it is drawn first, and then referred to."""

    known: dict[str, str] = field(default_factory=dict)
    """Markup of a shape to its identifier."""

    def line(self, kind: str, points: str) -> str:
        """Return a polyline of a class."""
        return self._use(f'polyline points="{points}"', "", f'class="line {kind}" ')

    def area(self, kind: str, points: str) -> str:
        """Return a polygon of a class."""
        return self._use(f'polygon points="{points}"', "", f'class="band {kind}" ')

    def group(self, inside: str) -> str:
        """Return elements that bring their classes along."""
        return self._use("g", inside, "")

    def _use(self, element: str, inside: str, style: str) -> str:
        shape, name = f"{element}>{inside}", f"s{len(self.known) + 1}"
        if shape in self.known:
            return f'<use {style}href="#{self.known[shape]}"/>'
        self.known[shape] = name
        tag = element.partition(" ")[0]
        return f'<defs><{element} id="{name}">{inside}</{tag}></defs><use {style}href="#{name}"/>'


def picture(inside: str, width: float, height: float, title: str, kind: str = "") -> str:
    """Return a drawing as an SVG element that has a title, for screen readers and as its tooltip.

    Args:
        inside: Markup of its shapes.
        width: In units of the drawing.
        height: In the same units.
        title: Its title, escaped.
        kind: Class of the page's style.
    """
    styled = f'class="{kind}" ' if kind else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {styled}viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{title}"><title>{title}</title>{inside}</svg>'
    )


def draw(chart: Chart, shapes: Shapes | None = None) -> str:
    """Return a chart as one SVG element, valid XML, styled by the classes of the page.

    Args:
        chart: What is drawn.
        shapes: Shapes of the page so far, which grow; None for a drawing that stands alone.
    """
    shapes = Shapes() if shapes is None else shapes
    marked = [mark.step for mark in chart.marks]
    every = [*chart.steps, *marked]
    frame = _Frame(chart, chart.across or _whole(linear(every, count=6), every))
    bands = [_band(frame, plot, shapes) for plot in chart.plots if plot.band]
    lines = [_line(frame, plot, shapes) for plot in chart.plots if not plot.band]
    marks = [_mark(frame, mark) for mark in chart.marks]
    inside = "".join([shapes.group(_axes(frame)), *bands, *lines, *marks])
    return picture(inside, chart.width, chart.height, escape(clean(chart.title)))


def _whole(scale: Scale, steps: Sequence[float]) -> Scale:
    """Return a scale of steps that ends where they end, with labels at whole ones."""
    low, high = min(steps), max(steps)
    if low == high:
        low, high = low - 1, high + 1
    ticks = tuple((value, label) for value, label in scale.ticks if low <= value <= high and value == int(value))
    return Scale(kind="linear", low=low, high=high, ticks=ticks)


def _axes(frame: _Frame) -> str:
    left, right = LEFT, frame.chart.width - RIGHT
    out = []
    for value, label in frame.chart.scale.ticks:
        y = frame.y(value)
        kind = "zero" if value == 0 else "grid"
        out.append(f'<line class="{kind}" x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="tick" x="{left - 6:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{escape(label)}</text>'
        )
    for value, label in frame.across.ticks:
        x = frame.x(value)
        out.append(
            f'<line class="tickmark" x1="{x:.1f}" y1="{frame.bottom:.1f}" x2="{x:.1f}" y2="{frame.bottom + 4:.1f}"/>'
        )
        out.append(
            f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 16:.1f}" text-anchor="middle">{escape(label)}</text>'
        )
    base, name = f"{frame.bottom:.1f}", escape(clean(frame.chart.name))
    out.append(f'<text class="tick" x="{left - 16:.1f}" y="{frame.bottom + 16:.1f}" text-anchor="end">{name}</text>')
    out.append(f'<line class="axis" x1="{left:.1f}" y1="{base}" x2="{right:.1f}" y2="{base}"/>')
    return "".join(out)


def _stretches(frame: _Frame, values: RecordedSeries) -> list[list[tuple[float, float]]]:
    """Return the runs of finite values, cut where one is missing or not finite."""
    out: list[list[tuple[float, float]]] = [[]]
    for step, value in zip(frame.chart.steps, values, strict=True):
        if value is not None and math.isfinite(value):
            out[-1].append((step, value))
        elif out[-1]:
            out.append([])
    return [stretch for stretch in out if stretch]


def _line(frame: _Frame, plot: Plot, shapes: Shapes) -> str:
    out = []
    for stretch in _stretches(frame, plot.values):
        points = [(frame.x(step), frame.y(value)) for step, value in stretch]
        if plot.dotted or len(points) == 1:
            out += [f'<circle class="dot {plot.kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
            continue
        if plot.stepped:
            points = [points[0], *(p for a, b in pairwise(points) for p in ((b[0], a[1]), b))]
        out.append(shapes.line(plot.kind, _points(_bends(points))))
    for step, value in zip(frame.chart.steps, plot.values, strict=True):
        if value is not None and not math.isfinite(value):
            x, title = frame.x(step), f"<title>{value} at step {step}</title>"
            out.append(f'<path class="symbol nonfinite" d="{_symbol("nonfinite", x, TOP - 8)}">{title}</path>')
    return "".join(out)


def _band(frame: _Frame, plot: Plot, shapes: Shapes) -> str:
    out = []
    for stretch in _stretches(frame, plot.values):
        stretch = stretch if len(stretch) > 1 else stretch * 2
        upper = [(frame.x(step), frame.y(value)) for step, value in stretch]
        lower = [(frame.x(step), frame.y(-value)) for step, value in reversed(stretch)]
        out.append(shapes.area(plot.kind, _points([*_bends(upper), *_bends(lower)])))
    return "".join(out)


def _mark(frame: _Frame, mark: StepMark) -> str:
    x, top, title = frame.x(mark.step), TOP - 8, f"<title>{escape(clean(mark.label))}</title>"
    if mark.kind == "skipped":
        base = frame.bottom
        return f'<path class="mark skipped" d="M{x - 3:.1f} {base - 7:.1f}h6l-3 6z">{title}</path>'
    line = f'<line class="mark {mark.kind}" x1="{x:.1f}" y1="{TOP:.1f}" x2="{x:.1f}" y2="{frame.bottom:.1f}"/>'
    y = frame.bottom - 5 if mark.kind == "first" else top  # on its own: it often comes right after a resume
    return f'<g>{title}{line}<path class="symbol {mark.kind}" d="{_symbol(mark.kind, x, y)}"/></g>'


def _symbol(kind: str, x: float, y: float) -> str:
    if kind == "kill":
        return f"M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7"
    if kind == "resume":
        return f"M{x - 3:.1f} {y - 4:.1f}l7 4l-7 4z"
    if kind == "handover":
        return f"M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z"
    if kind == "nonfinite":
        return f"M{x - 4:.1f} {y + 3.5:.1f}h8l-4 -7z"
    return f"M{x - 4.5:.1f} {y + 4:.1f}h9l-4.5 -8z"


def _bends(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those that lie on a level line between their neighbours: the line is the same."""
    kept = list(points[:1])
    for here, after in pairwise(points[1:]):
        if not f"{kept[-1][1]:.1f}" == f"{here[1]:.1f}" == f"{after[1]:.1f}":
            kept.append(here)
    return [*kept, *points[1:][-1:]]


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def swatch(kind: str) -> str:
    """Return what stands for a line, a band or a mark in a legend."""
    if kind in ("allowed", "envelope"):
        body = f'<rect class="band {kind}" x="1" y="2" width="20" height="8"/>'
    elif kind in ("reference", "other"):
        body = f'<line class="line {kind}" x1="1" y1="6" x2="21" y2="6"/>'
    elif kind == "skipped":
        body = '<path class="mark skipped" d="M8 3h6l-3 6z"/>'
    else:
        body = f'<path class="symbol {kind}" d="{_symbol(kind, 11, 6)}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="swatch" viewBox="0 0 22 12" aria-hidden="true">{body}</svg>'
    )


_ICONS = {
    "holds": '<circle cx="10" cy="10" r="9"/><path d="M5.5 10.5l3 3l6 -7"/>',
    "broken": '<path d="M6.3 1h7.4l5.3 5.3v7.4l-5.3 5.3h-7.4l-5.3 -5.3v-7.4z"/><path d="M6.5 6.5l7 7m0 -7l-7 7"/>',
    "crashed": '<path d="M10 1.5l9 16.5h-18z"/><path d="M10 7v5.5m0 2.2v0.6"/>',
    "inconclusive": (
        '<path d="M10 0.8l9.2 9.2l-9.2 9.2l-9.2 -9.2z"/>'
        '<path d="M7.5 8a2.5 2.5 0 1 1 3.4 2.3q-0.9 0.4 -0.9 1.7m0 2.4v0.6"/>'
    ),
    "empty": '<circle cx="10" cy="10" r="9"/><path d="M6 10h8"/>',
}
"""The outline differs for each verdict, so that it can be seen without colour."""


def verdict_icon(verdict: str) -> str:
    """Return the shape of a verdict."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="icon {verdict}" viewBox="0 0 20 20" aria-hidden="true">'
        f"{_ICONS[verdict]}</svg>"
    )
