"""The figures of a check as one table: every quantity at every step, equal columns once, constants as a list."""

from __future__ import annotations

from dataclasses import dataclass

from parity.report.words import exact
from parity.results import Curves, SeriesPair

__all__ = ["FigureTable", "is_known", "tabulate"]

FigureColumn = tuple[str, tuple[str, ...]]
"""Head and cells."""


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """The figures of the charts of a check, every digit written."""

    steps: tuple[str, ...]
    columns: tuple[FigureColumn, ...]
    constants: tuple[tuple[str, str], ...] = ()
    """Quantities that have one value at every step, and that value."""


def tabulate(curves: Curves) -> list[FigureTable]:
    """Return the figures of the curves of a check, then those of its validations, if it has any.

    A quantity that both runs share bit for bit has one column.
    """
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
    tables = [_table(curves.steps, columns)]
    found = curves.validations
    if found is not None and found.steps:
        tables.append(_table(found.steps, _pair(f"validation {found.metric}", found.value, curves)))
    return tables


def is_known(pair: SeriesPair) -> bool:
    """Return whether a quantity has a value at any step: of a trainer of one's own only the loss may be known."""
    return any(value is not None for series in pair for value in series)


def _table(steps: tuple[int, ...], columns: list[FigureColumn]) -> FigureTable:
    constant = [(head, cells[0]) for head, cells in columns if len(cells) > 1 and len(set(cells)) == 1]
    varying = [column for column in columns if (column[0], column[1][0]) not in constant]
    return FigureTable(steps=tuple(map(str, steps)), columns=tuple(varying), constants=tuple(constant))


def _pair(quantity: str, pair: SeriesPair, curves: Curves) -> list[FigureColumn]:
    """Return a column for each run, or one for both where every cell is equal."""
    first, second = map(_cells, pair)
    if not is_known(pair):
        return []
    if first == second:
        return [(f"{quantity} (both)", first)]
    return [(f"{quantity}, {label}", cells) for label, cells in zip(curves.labels, (first, second), strict=True)]


def _cells(series: tuple[float | None, ...]) -> tuple[str, ...]:
    return tuple(map(exact, series))
