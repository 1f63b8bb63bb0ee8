"""Steps per second as bars, one panel for each model: on the page, and as a file of its own for README and docs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from parity.report.bench_speeds import MODELS, NOT_MEASURED, SpeedRow, speed_words
from parity.report.html.scales import linear
from parity.report.html.svg import picture
from parity.report.words import clean

__all__ = ["speed_file", "speed_panel"]

WIDTH, ROW, HEAD = 380, 22, 24
"""Of a panel, in units of the drawing: its width, the height of a row, and that of the title."""

NAMES, FIGURES = 128, 70
"""Room for the names on the left and for the figures on the right."""

_STYLE = """
text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1b1f24; }
.title { font-weight: 600; } .speed { fill: #0b4f9e; } .speed.torch { fill: #b45309; } .none { fill: #5b6570; }
.before { stroke: #1b1f24; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; } .speed { fill: #6cb0ff; } .speed.torch { fill: #f0a04b; } .none { fill: #9aa4af; }
  .before { stroke: #e4e7eb; }
}
"""
"""The style of the chart where it is a file of its own: on the page, that of the page holds."""


def speed_panel(rows: Sequence[SpeedRow], model: str) -> str:
    """Return the bars of one model as an SVG element, from zero on one linear scale.

    Args:
        rows: A row for each way of training.
        model: One of `MODELS`.
    """
    return picture(_panel(rows, model), WIDTH, _height(rows), escape(f"steps per second, {model}"), "speeds")


def speed_file(rows: Sequence[SpeedRow]) -> str:
    """Return the panels of all models below each other, as an SVG file that needs no page."""
    height = _height(rows)
    panels = [
        f'<g transform="translate(0 {number * (height + 12)})">{_panel(rows, model)}</g>'
        for number, model in enumerate(MODELS)
    ]
    whole = len(MODELS) * (height + 12)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" viewBox="0 0 {WIDTH} {whole}" role="img" '
        f'aria-label="steps per second"><title>steps per second</title><style>{_STYLE}</style>'
        f"{''.join(panels)}</svg>\n"
    )


def _height(rows: Sequence[SpeedRow]) -> int:
    return HEAD + ROW * len(rows) + 4


def _panel(rows: Sequence[SpeedRow], model: str) -> str:
    column = MODELS.index(model)
    scale = linear([0.0, *(row.speeds[column] for row in rows), *(row.before[column] for row in rows)], zero=True)
    room = WIDTH - NAMES - FIGURES
    out = [f'<text class="title" x="0" y="15">{escape(model)}, steps per second</text>']
    for number, row in enumerate(rows):
        y, value, before = HEAD + ROW * number, row.speeds[column], row.before[column]
        name = escape(clean(row.name))
        out.append(f'<text x="{NAMES - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
        if value is None:
            out.append(f'<text class="none" x="{NAMES}" y="{y + 15}">{NOT_MEASURED}</text>')
            continue
        side = row.side if row.side in ("jax", "torch") else "other"
        length = max(1.0, scale.place(value) * room)
        out.append(f'<rect class="speed {side}" x="{NAMES}" y="{y + 3}" width="{length:.1f}" height="{ROW - 6}"/>')
        out.append(f'<text x="{NAMES + length + 6:.1f}" y="{y + 15}">{speed_words(value)}</text>')
        if before is not None:
            place = NAMES + scale.place(before) * room
            out.append(f'<path class="before" d="M{place:.1f} {y + 1}v{ROW - 2}"><title>before</title></path>')
    return "".join(out)
