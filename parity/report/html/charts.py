"""The charts of a check: its curves, their differences, and what is marked on them."""

from __future__ import annotations

from dataclasses import replace

from parity.report.html.figure_table import is_known
from parity.report.html.scales import spanning, symmetric
from parity.report.html.svg import Chart, Plot, StepMark
from parity.results import CheckRecord, Curves, SeriesPair

__all__ = ["figures"]

SPAN = 50.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""

ROOM = 1020
"""Units across which the small charts share: drawn at their own size on a wide screen, letters included."""


def figures(record: CheckRecord) -> list[Chart]:
    """Return the charts of a check, none if it kept no curves."""
    curves = record.curves
    if curves is None or not curves.steps:
        return []
    loss = replace(_quantity(curves, "loss", curves.loss), marks=_marks(record, curves))
    large = [replace(chart, width=520, height=230) for chart in (loss, _difference(record, curves))]
    rest = (("learning rate", curves.lr), ("gradient norm", curves.grad_norm))
    small = [_quantity(curves, name, pair) for name, pair in rest if is_known(pair)]
    if is_known(curves.loss_scale):
        small.append(_loss_scale(curves))
    if (found := curves.validations) is not None and found.steps:
        small.append(_quantity(curves, f"validation {found.metric}", found.value, found.steps))
    width = ROOM // max(len(small), 1)
    return large + [replace(chart, width=width, height=155) for chart in small]


def _difference(record: CheckRecord, curves: Curves) -> Chart:
    bands = [
        Plot(kind=kind, label=label, values=values)
        for kind, label, values in (
            ("allowed", "what passes", curves.allowed),
            ("envelope", "measured envelope", curves.envelope),
        )
        if values is not None
    ]
    difference = Plot(kind="other", label="difference", values=curves.difference)
    shown = [value for plot in (*bands, difference) for value in plot.values]
    if not any(curves.difference):
        caption = "zero at every step"
    else:
        caption = "symmetric log scale" if bands else "symmetric log scale; only zero passes"
    return Chart(
        title=f"difference of the loss: {curves.labels[1]} less {curves.labels[0]}",
        caption=caption,
        steps=curves.steps,
        plots=(*bands, difference),
        scale=symmetric(shown),
        marks=_marks(record, curves),
    )


def _quantity(
    curves: Curves, title: str, pair: SeriesPair, steps: tuple[int, ...] | None = None, *, stepped: bool = False
) -> Chart:
    """Return the reference as a wide line and the other run as a thin one over it: equal curves show both.

    Args:
        curves: Of both runs.
        title: What the quantity is called.
        pair: The quantity in both runs.
        steps: Steps of its values; None for those of the curves.
        stepped: Whether a value holds until the next one.
    """
    kinds = zip(("reference", "other"), curves.labels, pair, strict=True)
    return Chart(
        title=title,
        steps=curves.steps if steps is None else steps,
        plots=tuple(Plot(kind=kind, label=label, values=one, stepped=stepped) for kind, label, one in kinds),
        scale=spanning((*pair[0], *pair[1]), SPAN),
    )


def _loss_scale(curves: Curves) -> Chart:
    marks = tuple(StepMark(kind="skipped", step=step, label=f"step {step} was skipped") for step in curves.skipped)
    values = {value for series in curves.loss_scale for value in series}
    chart = _quantity(curves, "loss scale", curves.loss_scale, stepped=True)
    return replace(chart, marks=marks, caption="no scaler" if values <= {1.0, None} else "")


def _marks(record: CheckRecord, curves: Curves) -> tuple[StepMark, ...]:
    out = [StepMark(kind="kill", step=step, label=f"killed at step {step}") for step in curves.kills]
    out += [StepMark(kind="resume", step=step, label=f"resumed from step {step}") for step in curves.resumes]
    out += [StepMark(kind="handover", step=step, label=f"handed over at step {step}") for step in curves.handovers]
    first = record.first_divergence
    if first is not None:
        out.append(
            StepMark(kind="first", step=first.step, label=f"first divergence: step {first.step}, {first.quantity}")
        )
    return tuple(out)
