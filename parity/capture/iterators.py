"""Iterators, suspended generators and coroutines: their positions, their variables, and what they iterate over."""

from __future__ import annotations

import array
import collections
import copy
import gc
import itertools
import operator
import struct
import types
from contextlib import suppress
from typing import Any

import numpy as np

from parity.capture.arrays import PLAIN
from parity.capture.leaf import Leaf
from parity.capture.liveness import live_names
from parity.capture.modules import is_of_user
from parity.capture.names import component_from_name
from parity.capture.registry import Visit, is_a, register
from parity.capture.walk import Walk

__all__ = ["NOT_BEGUN", "loop_iterators"]


def _generator(walk: Walk, path: str, value: Any) -> None:
    """Look into a suspended generator or coroutine: where it is, its variables, and the iterators of its loops.

    What it does not read any more is looked at last, and is noted as such: a variable that is dead in its code may be
    shared with one that is not.
    """
    prefix = _PREFIXES[next(cls for cls in _PREFIXES if isinstance(value, cls))]
    frame = getattr(value, f"{prefix}_frame")
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    # Python 3.11 does not say it of asynchronous generators
    begun = frame is None or getattr(value, f"{prefix}_running") or getattr(value, f"{prefix}_suspended", True)
    place = str(frame.f_lasti if frame else -1) if begun else NOT_BEGUN
    walk.add(f"{path}.at", Leaf("position", component, "int", place), lambda: place)
    if frame is None or getattr(value, f"{prefix}_running"):
        return
    walk.inside_iterator(path, floats=not is_of_user(frame.f_globals.get("__name__")))
    live = live_names(frame.f_code, frame.f_lasti)
    for name, item in frame.f_locals.items():
        if name in live:
            _inner(walk, f"{path}.{name}", item)
        elif not is_a(item, *PLAIN):
            walk.dead(f"{path}.{name}")
            walk.root(f"{path}.{name}", item, dead=True)
    for at, iterator in enumerate(_on_the_stack(value, frame)):
        _inner(walk, f"{path}.for[{at}]", iterator)
    awaited = getattr(value, f"{prefix}_await", None)
    if awaited is not None:
        _inner(walk, f"{path}.await", awaited)


NOT_BEGUN = "before its beginning"
"""Place of a generator that nobody has asked for anything yet: it skips to where it is to go on by itself."""


_PREFIXES = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}


def _inner(walk: Walk, path: str, value: Any) -> None:
    """Show what an iterator holds: numbers and arrays of whole numbers inside of it are its position."""
    if is_a(value, *PLAIN):
        walk.leaf(path, value, "data.position", "position")
    elif is_a(value, list, tuple) and all(type(item) in PLAIN for item in value):
        walk.data(path, repr(value).encode(), f"{type(value).__name__}[{len(value)}]", "data.position", "position")
    else:
        walk.visit(path, value)


def loop_iterators(generator: types.GeneratorType[Any, Any, Any]) -> list[Any]:
    """Return the iterators of the for-loops in which a suspended generator stands, the outermost first.

    They are on its stack, not among its variables; the garbage collector sees both.
    """
    return _on_the_stack(generator, generator.gi_frame)


def _on_the_stack(suspended: Any, frame: Any) -> list[Any]:
    if frame is None:
        return []
    local = {id(value) for value in frame.f_locals.values()}
    return [
        one for one in gc.get_referents(suspended)
        if id(one) not in local and one is not suspended and hasattr(type(one), "__next__")
    ]  # fmt: skip


def _iterator(walk: Walk, path: str, value: Any) -> None:
    """Look into an iterator of the standard library: its position, and what it iterates over."""
    if not walk.is_new(path, value, "data.position"):
        return
    walk.inside_iterator(path, floats=False)
    if isinstance(value, _RANGES):
        walk.leaf(f"{path}.left", operator.length_hint(value), "data.position", "position")
        return
    with suppress(TypeError):  # an endless one has no length
        hint = getattr(value, "__length_hint__", None)
        if hint is not None:
            walk.leaf(f"{path}.left", hint(), "data.position", "position")
    try:
        parts = value.__reduce__()
    except TypeError:
        parts = None
    if isinstance(value, itertools.cycle) and isinstance(parts, tuple) and _is_shown_by_period(walk, path, parts):
        return
    if isinstance(value, _TEE) and isinstance(parts, tuple) and _is_shown_by_what_waits(walk, path, *parts[2]):
        return
    if isinstance(parts, tuple) and len(parts) > 2 and not isinstance(value, itertools.zip_longest):
        _inner(walk, f"{path}.state", parts[2])
    if isinstance(value, enumerate) and isinstance(parts, tuple):
        walk.leaf(f"{path}.count", parts[1][1], "data.position", "position")
    inside = gc.get_referents(value)
    if (
        isinstance(value, itertools.cycle)
        and isinstance(parts, tuple)
        and not any(parts[1][0] is one for one in inside)
    ):
        # behind its first pass it goes through what it has saved, by a number that only an iterator of that tells
        walk.leaf(f"{path}.left", operator.length_hint(parts[1][0]), "data.position", "position")
    if isinstance(value, itertools.zip_longest):  # its own tuple has holes where an input has run out
        inside = list(parts[1]) if isinstance(parts, tuple) else []
    for at, part in enumerate(inside):
        if not is_a(part, type, types.ModuleType, types.BuiltinFunctionType):
            _inner(walk, f"{path}.of[{at}]" if at else f"{path}.of", part)


def _is_shown_by_period(walk: Walk, path: str, parts: tuple[Any, ...]) -> bool:
    """Show a cycle by what it goes through and how much of that is left; return whether that can be told.

    It keeps whether it is in its first pass, and there only what it has given. So two that give the same from here on
    would be two states, where a new process brings the one to its place within a pass.

    Args:
        walk: The walk.
        path: Path of the cycle.
        parts: What the cycle reduces to: its iterator, what it has saved, and whether it saves no more.
    """
    iterator, (saved, is_full) = parts[1][0], parts[2]
    if type(iterator) not in _COPIED or len(saved) + operator.length_hint(iterator) > walk.many:
        return False
    left = list(copy.copy(iterator))
    period = list(saved) if is_full else [*saved, *left]
    pairs = zip(reversed(left), reversed(period), strict=False)
    if len(left) > len(period) or any(one is not other for one, other in pairs):
        return False
    walk.leaf(f"{path}.left", len(left) or len(period), "data.position", "position")
    _inner(walk, f"{path}.of", period)
    return True


def _is_shown_by_what_waits(walk: Walk, path: str, block: Any, at: int) -> bool:
    """Show one of the iterators of a `tee` by what was drawn and not given yet, and what it draws from.

    It keeps blocks of what was drawn, what it has given itself among it: so two that give the same from here on would
    be two states, where a new process makes them anew.

    Args:
        walk: The walk.
        path: Path of the iterator.
        block: The block that it stands in.
        at: Its place in the block.

    Returns:
        Whether the blocks say what they hold.
    """
    waiting: list[Any] = []
    while True:
        try:
            _, (source, held, following) = block.__reduce__()
        except (TypeError, ValueError):
            return False
        waiting += held[at:]
        if following is None or len(waiting) > walk.many:
            break
        block, at = following, 0
    _inner(walk, f"{path}.waiting", waiting)
    _inner(walk, f"{path}.of", source)
    return True


_TEE: type = type(itertools.tee(())[0])

_COPIED: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter("")), type(iter(range(0))))
"""Iterators of which a copy goes through the same, and leaves the first where it is."""


def _telling(name: str) -> Visit:
    """Return what shows an iterator of C by the number that it tells, and what it goes through."""

    def visit(walk: Walk, path: str, value: Any) -> None:
        if walk.is_new(path, value, "data.position"):
            walk.leaf(f"{path}.{name}", getattr(value, name), "data.position", "position")
            for at, part in enumerate(gc.get_referents(value)):
                if not is_a(part, type, types.ModuleType):
                    _inner(walk, f"{path}.of[{at}]" if at else f"{path}.of", part)

    return visit


_RANGES = (type(iter(range(0))), type(iter(range(1 << 70))))


def _counter(walk: Walk, path: str, value: Any) -> None:
    """`itertools.count` shows its next number in its text."""
    if walk.is_new(path, value, component_from_name(path)):
        walk.leaf(f"{path}.next", str(value), component_from_name(path), "position")


_ITERATORS: tuple[Any, ...] = (
    enumerate, zip, map, filter, reversed, type(iter([])), type(iter(())), type(iter({})), type(iter({}.items())),
    type(iter({}.values())), type(iter(set())), type(iter("")), type(iter(int, 1)), type(iter(np.zeros(1))),
    type(reversed([])), type(reversed({})), type(iter(b"")), type(iter(bytearray())), type(iter(memoryview(b""))),
    itertools.cycle, itertools.chain, itertools.islice, itertools.zip_longest, itertools.repeat, itertools.product,
    itertools.permutations, itertools.combinations, itertools.combinations_with_replacement, itertools.starmap,
    itertools.accumulate, itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.compress,
    type(iter(collections.OrderedDict())), type(iter(collections.deque())), type(reversed(collections.deque())),
    type(iter(array.array("b"))), type(struct.iter_unpack("b", b"")),
    itertools.pairwise, itertools.groupby, _TEE,
    *(getattr(itertools, name) for name in ("_tee_dataobject", "_grouper")), *_RANGES,
)  # fmt: skip


def _register() -> None:
    for kind in _ITERATORS:
        register(kind, _iterator)
    register(itertools.count, _counter)
    register("_csv.reader", _telling("line_num"))
    register(np.nditer, _telling("iterindex"))
    register(np.flatiter, _telling("index"))
    for kind in _PREFIXES:
        register(kind, _generator)


_register()
