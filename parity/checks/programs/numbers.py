"""Numbers that make a program another one: one of its own, one that fills a mask, or a factor or summand besides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from parity.checks.programs.edits import Explanation, OperationChange, edit_of
from parity.checks.programs.solving import solve_number
from parity.checks.programs.trials import ProgramTrial
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["COUNTS", "numbers_besides", "numbers_of"]

COUNTS = frozenset(("zeros", "ones", "view", "reshape", "permute", "transpose", "chunk", "split", "embedding"))
COUNTS |= {"expand", "arange", "unsqueeze", "squeeze", "flatten", "tril", "triu", "one_hot", "size", "repeat"}
COUNTS |= {"broadcast_in_dim", "iota", "select", "movedim", "unfold", "cat", "stack", "eye", "full"}
"""Operations whose numbers are extents and places, and no numbers to compute with."""

_HUGE = 10.0
"""Size from which a number may stand for an infinite one, so that no other can be solved for from it."""

_FILLED = (0.0, -np.inf, -1.0, 1.0, -1e9, -1e4, -100.0, -10.0, np.inf)
"""Numbers that are filled in, such as where a mask is not set; below -1000 all are one to a softmax."""

_WHOLE = (("factor", 1.0, np.multiply), ("summand", 0.0, np.add), ("power", 1.0, np.power))

FAR = 10.0
"""Times of a number from which another is too far away to be solved for; and the least size of one that may be it."""

MOST_STATED = 6
"""Numbers of the other program that are tried as they are."""

FURTHER_SECONDS = 1.5
"""Of the processor, in which further numbers are looked for when one does: of several factors of one product each
can be the other one, and the number that the other program has is the one that is told."""


def numbers_of(search: ProgramTrial) -> list[Explanation]:
    """Return numbers that make a program equal: those of the program, or what it fills in.

    Args:
        search: Of the program.
    """
    if not search.limit > 0.0:
        return []
    if found := _own(search):
        return found
    for at in search.parted:
        if filled := _filled(search, at):
            return [filled]
    return []


def _own(search: ProgramTrial) -> list[Explanation]:
    """Return numbers of the program that are others: those that the other program has, where it has one of them."""
    found: list[tuple[tuple[bool, bool], int, Explanation]] = []
    end = search.end
    for at in search.parted:
        one = search.operations[at]
        if one.kind in COUNTS or one.outputs[0].dtype.kind != "f":
            continue
        for key, start in one.numbers.items():
            for group in search.groups(at):
                if time.process_time() > end:
                    break
                edits = partial(_with_number, group, key)
                value = _solved(search, edits, start)
                value = _stated(search, edits, start) if value is None else value
                if value is not None:
                    name = f" {key}" if not key.isdigit() else ""
                    change = OperationChange(
                        f"number{name} of {one.kind}",
                        f"{start:.10g}",
                        f"{_plain(value, start):.10g}",
                        2,
                        OperationEdit(),
                    )
                    told = not _held(search, value), _held(search, start)
                    made = search.explanation(change, at, _with_number(group, key, value))
                    found.append((told, len(found), made))
                    end = min(end, time.process_time() + FURTHER_SECONDS)
                    break
    if not found:
        return []
    best = min(found)[0]
    return [one for told, _, one in found if told == best][: 1 if best[0] else 2]


def _stated(search: ProgramTrial, edits: Callable[[float], dict[int, OperationEdit]], start: float) -> float | None:
    """Return a number that the other program states, with which this one gives what is wanted.

    Of a base of powers steps from another one lead nowhere where it is many times as large.
    """
    far = [one for one in search.candidates.numbers if abs(one) > FAR * abs(start) or FAR * abs(one) < abs(start)]
    for value in sorted(far)[:MOST_STATED] if abs(start) >= FAR else ():
        if time.process_time() > search.end:
            break
        made = search.run_first(edits(value))
        if (
            made is not None
            and float(np.abs(made - search.first).max(initial=0.0)) <= 1.0
            and search.fits(edits(value))
        ):
            return value
    return None


def _plain(value: float, start: float) -> float:
    """Return a number as it is shown: what solving leaves of nothing is 0."""
    return 0.0 if abs(value) <= 1e-9 * abs(start) else value


def _held(search: ProgramTrial, value: float) -> bool:
    """Return whether the other program has a number, or its inverse, which a product with it is a quotient by."""
    return any(
        abs(value - one) <= 1e-9 * abs(one) or abs(value * one - 1.0) <= 1e-9 for one in search.candidates.numbers
    )


def numbers_besides(search: ProgramTrial) -> list[Explanation]:
    """Return a factor, a summand or a power after an operation, none of which the program has.

    Args:
        search: Of the program.
    """
    for at in search.parted if search.limit > 0.0 else ():
        if search.operations[at].outputs[0].dtype.kind != "f" or len(search.operations[at].outputs) != 1:
            continue
        for topic, start, make in _WHOLE:
            for group in search.groups(at)[:2]:
                if time.process_time() > search.end:
                    return []
                value = _solved(search, partial(_with_scale, group, make), start)
                if value is not None and abs(value - start) > 1e-12:
                    shown = f"{topic} {value:.10g}{_meaning(search, at, value)} after {search.operations[at].kind}"
                    change = OperationChange(topic, "none", shown.removeprefix(f"{topic} "), 3, OperationEdit())
                    return [search.explanation(change, at, _with_scale(group, make, value))]
    return []


def _filled(search: ProgramTrial, at: int) -> Explanation | None:
    """Return another number in place of one that a value is filled with, or that stands where a mask is not set.

    What is infinite, or as good as that, can be no start from which another number is solved for.
    """
    for start, make in _fillings(search.operations[at]):
        for number in _FILLED:
            for group in search.groups(at) if number != start and time.process_time() <= search.end else ():
                edits = dict.fromkeys(group, make(number))
                if search.fits(edits):
                    words = f"number that {search.operations[at].kind} fills in"
                    change = OperationChange(words, f"{start:.4g}", f"{number:.4g}", 2, OperationEdit())
                    return search.explanation(change, at, edits)
    return None


def _fillings(one: ProgramOperation) -> Iterator[tuple[float, Callable[[float], OperationEdit]]]:
    """Yield what an operation fills in, or a mask that it is given holds, and what makes an edit of another."""
    for key, start in one.numbers.items():
        if not abs(start) < _HUGE:
            yield start, partial(_with_filled, key)
    alike = len(one.outputs) == 1 and one.outputs[0].dtype.kind == "f" and one.outputs[0].size > 1
    value = float(one.outputs[0].flat[0]) if alike else 0.0
    if alike and all(x.size <= 1 for x in one.inputs) and (one.outputs[0] == value).all():
        yield value, partial(_with_filled, None)
    for place, x in enumerate(one.inputs):  # a mask
        held = np.unique(x) if x.dtype.kind == "f" and x.size > 1 else np.zeros(0)
        if held.size == 2 and (held == 0.0).any():
            yield float(held.sum()), partial(_with_mask, place)


def _solved(search: ProgramTrial, edits: Callable[[float], dict[int, OperationEdit]], start: float) -> float | None:
    """Return the number with which a program gives what is wanted at all draws: first one for the first of them."""
    unchanged = search.run_first({})
    if unchanged is not None and float(np.abs(unchanged - search.first).max(initial=0.0)) > 1.0:
        value = solve_number(lambda value: search.run_first(edits(value)), start, search.first, 1.0)
        if value is None:
            return None
        made = search.run_with(edits(value))
        if made is not None and float(np.abs(made - search.wanted).max(initial=0.0)) <= search.limit:
            return value
    return solve_number(lambda value: search.run_with(edits(value)), start, search.wanted, search.limit)


def _meaning(search: ProgramTrial, at: int, value: float) -> str:
    """Return what a factor is of the extents that the operation sees."""
    one = search.operations[at]
    sizes = {n for a in (*one.inputs, *one.outputs) for n in a.shape if n > 1}
    for size in sorted(sizes):
        for words, number in ((f"{size}", size), (f"1/{size}", 1 / size), (f"root of {size}", size**0.5),
                              (f"1/root of {size}", size**-0.5)):  # fmt: skip
            if abs(value - number) <= 1e-9 * abs(number) and words != f"{value:.10g}":
                return f", the {words}" if words.startswith("root") else f", {words}"
    return ""


def _with_filled(key: str | None, number: float) -> OperationEdit:
    """Return an edit that fills in a number: the one of a key, or that which the whole output is."""
    return edit_of(lambda y: np.full_like(y, number)) if key is None else OperationEdit(numbers={key: number})


def _with_mask(place: int, number: float) -> OperationEdit:
    """Return an edit that gives an operation another number where a mask of zeros and one number has it."""

    def given(inputs: OperationArrays, held: object) -> OperationArrays:
        return tuple(np.where(x != 0.0, number, 0.0) if at == place else x for at, x in enumerate(inputs))

    return OperationEdit(given=given)


def _with_number(group: Sequence[int], key: str, value: float) -> dict[int, OperationEdit]:
    return {place: OperationEdit(numbers={key: value}) for place in group}


def _with_scale(group: Sequence[int], function: np.ufunc, value: float) -> dict[int, OperationEdit]:
    return dict.fromkeys(group, _scaled(function, value))


def _scaled(function: np.ufunc, value: float) -> OperationEdit:
    def after(
        outputs: OperationArrays, inputs: OperationArrays, sources: Sequence[OperationArrays]
    ) -> OperationArrays:
        with np.errstate(all="ignore"):
            return (function(outputs[0], value),)

    return OperationEdit(after=after)
