"""Generators that leave all to another one: by `yield from`, or by a loop that passes on what it yields."""

from __future__ import annotations

import dis
import gc
import itertools
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any

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
    # those that loops are over and those that variables hold: `work = inner()`, then `for step in work`; which of
    # several it is, nothing says
    held = {id(one): one for one in gc.get_referents(generator) if isinstance(one, GeneratorType)}
    only = next(iter(held.values())) if len(held) == 1 else None
    return only if only is not None and _holds_more_than_numbers(only) else None


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
    at = next((n for n, one in enumerate(found) if one.offset >= lasti), 0)
    at -= found[at].opname != "YIELD_VALUE"
    if at < 1 or found[at].opname != "YIELD_VALUE" or "LOAD_" not in found[at - 1].opname:
        return False
    # Python 3.13 has one instruction for a store and a load in one line, with both names
    targets = {_names(after)[0] for one, after in itertools.pairwise(found) if one.opname == "FOR_ITER"}
    return _names(found[at - 1])[-1] in targets


def _names(one: dis.Instruction) -> tuple[Any, ...]:
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)


def _holds_more_than_numbers(generator: GeneratorType[Any, Any, Any]) -> bool:
    held = generator.gi_frame.f_locals.values() if generator.gi_frame is not None else ()
    return any(not is_a(one, *PLAIN) and not hasattr(type(one), "__next__") for one in held)
