"""Steps per second as bars, one panel for each model: on the page, and as a file of its own for README and docs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from parity.report.bench_speeds import MODELS, SpeedRow, speed_words
from parity.report.html.scales import linear
from parity.report.html.svg import picture
from parity.report.words import clean

__all__ = ["speed_file", "speed_panel"]

WIDTH, ROW, HEAD, FOOT = 380, 22, 24, 40
"""Of a panel, in units of the drawing: its width, the height of a row, that of the title, and of axis and legend."""

NAMES, FIGURES = 128, 70
"""Room for the names on the left and for the figures on the right."""

_STYLE = """
text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1b1f24; }
.title { font-weight: 600; } .speed { fill: #0b4f9e; } .speed.torch { fill: #b45309; } .tick { fill: #5b6570; }
.before { stroke: #1b1f24; stroke-width: 2; } .spread { stroke: #1b1f24; fill: none; } .grid { stroke: #d5dae0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; } .speed { fill: #6cb0ff; } .speed.torch { fill: #f0a04b; } .tick { fill: #9aa4af; }
  .before { stroke: #e4e7eb; } .spread { stroke: #e4e7eb; } .grid { stroke: #3a424c; }
}
"""
"""The style of the chart where it is a file of its own: on the page, that of the page holds."""


def speed_panel(rows: Sequence[SpeedRow], model: str) -> str:
    """Return the bars of one model as an SVG element, from zero on one linear scale; what was measured has one.

    Args:
        rows: A row for each way of training.
        model: One of `MODELS`.
    """
    inside, height = _panel(rows, model)
    return picture(inside, WIDTH, height, escape(f"steps per second, {model}"), "speeds")


def speed_file(rows: Sequence[SpeedRow]) -> str:
    """Return the panels of the models that were measured below each other, as an SVG file that needs no page."""
    panels, top = [], 0
    for model in MODELS:
        if _measured(rows, model):
            inside, height = _panel(rows, model)
            panels.append(f'<g transform="translate(0 {top})">{inside}</g>')
            top += height + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" viewBox="0 0 {WIDTH} {top}" role="img" '
        f'aria-label="steps per second"><title>steps per second</title><style>{_STYLE}</style>'
        f"{''.join(panels)}</svg>\n"
    )


def _measured(rows: Sequence[SpeedRow], model: str) -> list[tuple[SpeedRow, float]]:
    column = MODELS.index(model)
    return [(row, value) for row in rows if (value := row.speeds[column]) is not None]


def _panel(rows: Sequence[SpeedRow], model: str) -> tuple[str, int]:
    """Return the shapes of one model, and how high they are together."""
    column, shown = MODELS.index(model), _measured(rows, model)
    spreads = [row.spread[column] if row.spread else None for row, _ in shown]
    ends = [value for pair in spreads if pair is not None for value in pair]
    befores = [row.before[column] for row, _ in shown]
    scale = linear([0.0, *(value for _, value in shown), *befores, *ends], zero=True)
    room, bottom = WIDTH - NAMES - FIGURES, HEAD + ROW * len(shown)
    out = [f'<text class="title" x="0" y="15">{escape(model)}, steps per second</text>']
    for value, words in scale.ticks:
        place = NAMES + scale.place(value) * room
        out.append(f'<path class="grid" d="M{place:.1f} {HEAD}V{bottom + 3}"/>')
        out.append(f'<text class="tick" x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{words}</text>')
    for number, ((row, value), spread, before) in enumerate(zip(shown, spreads, befores, strict=True)):
        y = HEAD + ROW * number
        side = row.side if row.side in ("jax", "torch") else "other"
        length = max(1.0, scale.place(value) * room)
        out.append(f'<text x="{NAMES - 8}" y="{y + 15}" text-anchor="end">{escape(clean(row.name))}</text>')
        out.append(f'<rect class="speed {side}" x="{NAMES}" y="{y + 3}" width="{length:.1f}" height="{ROW - 6}"/>')
        end = length
        if spread is not None:
            low, high = (NAMES + scale.place(one) * room for one in spread)
            out.append(f'<path class="spread" d="{_whisker(low, high, y)}"><title>quartiles</title></path>')
            end = max(end, high - NAMES)
        if before is not None:
            place = NAMES + scale.place(before) * room
            out.append(f'<path class="before" d="M{place:.1f} {y + 1}v{ROW - 2}"><title>before</title></path>')
            end = max(end, place - NAMES)
        out.append(f'<text x="{NAMES + end + 6:.1f}" y="{y + 15}">{speed_words(value)}</text>')
    out += _legend(bottom + 32, spread=bool(ends), before=any(before is not None for before in befores))
    return "".join(out), bottom + FOOT


def _whisker(low: float, high: float, y: float) -> str:
    return f"M{low:.1f} {y + 8}v6m0 -3H{high:.1f}m0 -3v6"


def _legend(y: int, *, spread: bool, before: bool) -> list[str]:
    """Return what the marks on the bars mean, for those that there are."""
    out, x = [], NAMES
    if spread:
        out.append(
            f'<path class="spread" d="{_whisker(x, x + 14, y - 15)}"/><text x="{x + 20}" y="{y}">quartiles</text>'
        )
        x += 90
    if before:
        mark = f'<path class="before" d="M{x + 3} {y - 12}v14"/>'
        out.append(f'{mark}<text x="{x + 10}" y="{y}">measured before</text>')
    return out
