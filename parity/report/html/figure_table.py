"""The figures of a check as one table: every quantity at every step, equal columns once, constants as a list."""

from __future__ import annotations

from dataclasses import dataclass

from parity.report.words import exact
from parity.results import CheckRecord, Curves, Pair

__all__ = ["FigureTable", "tabulate", "tabulate_validations"]

Column = tuple[str, tuple[str, ...]]
"""Head and cells."""


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """The figures of the charts of a check, every digit written."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    constants: tuple[tuple[str, str], ...] = ()
    """Quantities that have one value at every step, and that value."""


def tabulate(record: CheckRecord) -> FigureTable:
    """Return the figures of the curves of a check; a quantity that both runs share bit for bit has one column.

    The record must have curves.
    """
    curves = record.curves
    assert curves is not None, "a check without curves has no figures"
    columns = [
        *_pair("loss", curves.loss, curves),
        ("difference", _cells(curves.difference)),
        *([("what passes", _cells(curves.allowed))] if curves.allowed is not None else []),
        *([("measured envelope", _cells(curves.envelope))] if curves.envelope is not None else []),
        *_pair("learning rate", curves.lr, curves),
        *_pair("gradient norm", curves.grad_norm, curves),
        *_pair("loss scale", curves.loss_scale, curves),
    ]
    if curves.skipped:
        columns.append(("skipped", tuple("skipped" if step in curves.skipped else "" for step in curves.steps)))
    return _table(curves.steps, columns)


def tabulate_validations(record: CheckRecord) -> FigureTable | None:
    """Return the figures of the validations of a check; None where it has none."""
    curves = record.curves
    if curves is None or curves.validations is None or not curves.validations.steps:
        return None
    found = curves.validations
    return _table(found.steps, _pair(f"validation {found.metric}", found.value, curves))


def _table(steps: tuple[int, ...], columns: list[Column]) -> FigureTable:
    constant = [(head, cells[0]) for head, cells in columns if len(cells) > 1 and len(set(cells)) == 1]
    varying = [column for column in columns if (column[0], column[1][0]) not in constant]
    return FigureTable(
        heads=("step", *(head for head, _ in varying)),
        rows=tuple(zip(map(str, steps), *(cells for _, cells in varying), strict=True)),
        constants=tuple(constant),
    )


def _pair(quantity: str, pair: Pair, curves: Curves) -> list[Column]:
    """Return a column for each run, or one for both where every cell is equal."""
    first, second = map(_cells, pair)
    if first == second:
        return [(f"{quantity} (both)", first)]
    return [(f"{quantity}, {label}", cells) for label, cells in zip(curves.labels, (first, second), strict=True)]


def _cells(series: tuple[float | None, ...]) -> tuple[str, ...]:
    return tuple(map(exact, series))
