"""Generators that leave all to another one: by `yield from`, or by a loop that passes on what it yields."""

from __future__ import annotations

import dis
import gc
import itertools
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

from parity.capture.arrays import PLAIN
from parity.capture.registry import is_a

__all__ = ["delegated_to", "yields_a_loop_variable"]


def delegated_to(generator: GeneratorType[Any, Any, Any]) -> GeneratorType[Any, Any, Any] | None:
    """Return the generator that a suspended one has left its work to; None where it does its own.

    `for step in inner(): yield step` says no more of the training than `yield from inner()`, and what `inner` counts
    was once taken for the position of a feed: a lost patience counter was neither red nor listed. A feed of step
    numbers is passed on in the same form; it holds numbers and iterators alone, and stays one.
    """
    inner = generator.gi_yieldfrom
    if inner is not None or generator.gi_frame is None:
        return inner if isinstance(inner, GeneratorType) else None
    if not yields_a_loop_variable(generator.gi_code, generator.gi_frame.f_lasti):
        return None
    code, held = generator.gi_code, [one for one in gc.get_referents(generator) if hasattr(type(one), "__next__")]
    around = _loops_around(code, generator.gi_frame.f_lasti)
    iterators = _without_variables(held, generator)
    if around is not None and len(iterators) == len(around.targets):
        found = [iterators[around.at]]
    else:  # a loop in an `except` clause is not told from those before it; which of several it is, nothing says
        found = list({id(one): one for one in held if isinstance(one, GeneratorType)}.values())
    only = found[0] if len(found) == 1 else None
    return only if isinstance(only, GeneratorType) and _holds_more_than_numbers(only) else None


def _without_variables(held: list[Any], generator: GeneratorType[Any, Any, Any]) -> list[Any]:
    """Return the iterators of a generator's loops, the outermost first: the collector sees its variables before them.

    `for step in range(9): yield step` leaves nothing to the one generator that a variable holds, such as its data.
    """
    code, rest = generator.gi_code, list(held)
    local = {} if generator.gi_frame is None else generator.gi_frame.f_locals
    for name in code.co_varnames:
        at = next((at for at, one in enumerate(rest) if one is local.get(name)), None)
        if at is not None and name not in code.co_cellvars:
            del rest[at]
    return rest


class _LoopsAround(NamedTuple):
    """The loops that a yield is in."""

    targets: list[Any]
    """The variable of each, the outermost first."""
    at: int
    """Which of them has the variable that is yielded."""


@lru_cache(maxsize=512)
def _loops_around(code: CodeType, lasti: int) -> _LoopsAround | None:
    """Return the loops around a yield of a variable; None where it is that of none of them."""
    found = list(dis.get_instructions(code))
    at = _place_of_yield(found, lasti)
    if at < 1:
        return None
    pairs = [(one, after) for one, after in itertools.pairwise(found) if one.opname == "FOR_ITER"]
    targets = [_names(after)[0] for one, after in pairs if one.offset < found[at].offset < one.argval]
    name = _names(found[at - 1])[-1]
    if name not in targets:
        return None
    return _LoopsAround(targets, len(targets) - 1 - targets[::-1].index(name))


def _place_of_yield(found: list[dis.Instruction], lasti: int) -> int:
    """Return which instruction a generator is suspended at; 0, which no yield is, where that is anything else."""
    at = next((n for n, one in enumerate(found) if one.offset >= lasti), 0)
    at -= found[at].opname != "YIELD_VALUE"
    return at if at > 0 and found[at].opname == "YIELD_VALUE" else 0


@lru_cache(maxsize=512)
def yields_a_loop_variable(code: CodeType, lasti: int) -> bool:
    """Return whether what a generator has yielded is the variable of a `for` loop, as its byte code says.

    Args:
        code: Its code.
        lasti: Where it is suspended: at the yield, or at the instruction after it.

    Example:
        >>> def passes_on(inner):
        ...     for step in inner:
        ...         yield step
        >>> suspended = passes_on([1])
        >>> next(suspended), yields_a_loop_variable(suspended.gi_code, suspended.gi_frame.f_lasti)
        (1, True)
    """
    found = list(dis.get_instructions(code))
    at = _place_of_yield(found, lasti)
    if at < 1 or "LOAD_" not in found[at - 1].opname:
        return False
    targets = {_names(after)[0] for one, after in itertools.pairwise(found) if one.opname == "FOR_ITER"}
    return _names(found[at - 1])[-1] in targets


def _names(one: dis.Instruction) -> tuple[Any, ...]:
    """Return the variables of an instruction: Python 3.13 has one for a store and a load in one line, with both."""
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)


def _holds_more_than_numbers(generator: GeneratorType[Any, Any, Any]) -> bool:
    held = generator.gi_frame.f_locals.values() if generator.gi_frame is not None else ()
    return any(not is_a(one, *PLAIN) and not hasattr(type(one), "__next__") for one in held)
