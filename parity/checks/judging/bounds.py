"""Numbers that an error guards: `if n == 0: raise`, `assert left > 0`. Whether they decide, their course tells.

A count that goes up from the bound never comes to it: what was lost of it raises nothing, however long the run. One
that goes down to the bound ends a longer run at another step.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from parity.checks.judging.syntax import by_function, last_name, source_tree

__all__ = ["ErrorBound", "bound_of", "bounds_in", "keeps_away", "runs_into"]


class ErrorBound(NamedTuple):
    """What one statement compares before it raises."""

    name: str
    """Variable, attribute or key."""
    number: Fraction
    asserted: bool
    """Whether it is an `assert`."""


def bound_of(node: ast.AST) -> ErrorBound | None:
    """Return the bound of a statement that raises and does nothing else; None for any other."""
    match node:
        case ast.Assert(test=test):
            found = _compared(test)
        case ast.If(test=test, body=[ast.Raise()], orelse=[]):
            found = _compared(test)
        case _:
            return None
    return None if found is None else ErrorBound(*found, isinstance(node, ast.Assert))


def _compared(test: ast.expr) -> tuple[str, Fraction] | None:
    match test:
        case ast.Compare(left=left, comparators=[right]):
            for side, other in ((left, right), (right, left)):
                name, number = last_name(side), _number(other)
                if name and number is not None:
                    return name, number
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            name = last_name(inner)
            return (name, Fraction(0)) if name else None
    return None


def _number(node: ast.expr) -> Fraction | None:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            value = -value
        case ast.Constant(value=int() | float() as value):
            pass
        case _:
            return None
    return Fraction(value) if abs(value) < float("inf") else None


@functools.lru_cache(maxsize=64)
def bounds_in(file: str) -> tuple[tuple[int, ErrorBound], ...]:
    """Return the bounds in a file, each with the first line of its function."""
    found = ((line, bound_of(node)) for node, line in by_function(source_tree(file)))
    return tuple((line, bound) for line, bound in found if bound is not None)


def keeps_away(values: Sequence[Fraction], bounds: Iterable[ErrorBound]) -> bool:
    """Return whether a number goes away from each bound, from mark to mark, on one side of it.

    Example:
        >>> above_zero = [ErrorBound("n", Fraction(0), False)]
        >>> keeps_away([Fraction(0), Fraction(2)], above_zero), keeps_away([Fraction(2), Fraction(1)], above_zero)
        (True, False)
    """
    up, down = (values == sorted(values, reverse=back) for back in (False, True))
    return all((up and values[0] >= one.number) or (down and values[0] <= one.number) for one in bounds)


def runs_into(values: Sequence[Fraction], bounds: Iterable[ErrorBound]) -> bool:
    """Return whether a number comes nearer to a bound, from mark to mark, on one side of it.

    Example:
        >>> runs_into([Fraction(9), Fraction(8)], [ErrorBound("left", Fraction(0), True)])
        True
    """
    up, down = (values == sorted(values, reverse=back) and values[0] != values[-1] for back in (False, True))
    return any((down and values[-1] > one.number) or (up and values[-1] < one.number) for one in bounds)
