"""Kinds of the standard library and of NumPy: scalars, containers, dataclasses, iterators, generators of numbers."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import gc
import io
import itertools
import logging
import operator
import random
import re
import threading
import types
import weakref
from typing import Any

import numpy as np

from parity.contract.capture.liveness import live_names
from parity.contract.capture.names import component_from_name
from parity.contract.capture.walk import Visit, Walk, digest_of, register

__all__ = ["TRAINED", "capture_python_streams", "loop_iterators"]

TRAINED = ("model", "optimizer", "ema")
"""Components of which a single number is a parameter, not a figure for people."""

LONG = 64
"""Length above which a list of plain scalars is one leaf."""

_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def _scalar(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, value, component_from_name(path), "scalar")


def _ignore(walk: Walk, path: str, value: Any) -> None:
    """Files, locks, threads, loggers: no state of a training loop."""


def _text(walk: Walk, path: str, value: Any) -> None:
    walk.leaf(path, str(value), component_from_name(path), "scalar")


def _array(walk: Walk, path: str, value: np.ndarray[Any, Any]) -> None:
    component = component_from_name(path)
    interface = value.__array_interface__
    key = ("array", interface["data"][0], value.shape, value.strides, value.dtype.str)
    if value.size and not walk.is_new(path, value, component, key):
        return
    walk.array(path, value, component, "array" if value.size != 1 or component.startswith(TRAINED) else "scalar")


def _sequence(walk: Walk, path: str, value: Any) -> None:
    component = component_from_name(path)
    if not isinstance(value, tuple) and not walk.is_new(path, value, component):
        return
    walk.leaf(f"{path}.len", len(value), component, "structure")
    fields = getattr(type(value), "_fields", None)
    if fields:
        for name, item in zip(fields, value, strict=False):
            walk.visit(f"{path}.{name}", item)
    elif len(value) > LONG and all(_plain(item) for item in value):
        walk.data(path, repr(list(value)).encode(), f"{type(value).__name__}[{len(value)}]", component, "scalar")
    else:
        for at, item in enumerate(value):
            walk.visit(f"{path}[{at}]", item)


def _plain(item: Any) -> bool:
    """Return whether an item of a long list is a scalar, or a list of scalars such as a document of tokens."""
    return type(item) in _SCALARS or (type(item) in (list, tuple) and all(type(one) in _SCALARS for one in item))


def _set(walk: Walk, path: str, value: Any) -> None:
    if walk.is_new(path, value, component_from_name(path)):
        text = repr(sorted(map(_said, value)))
        walk.data(path, text.encode(), type(value).__name__, component_from_name(path), "scalar")


def _mapping(walk: Walk, path: str, value: Any) -> None:
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    walk.leaf(f"{path}.len", len(value), component, "structure")
    for key in list(value):
        name = f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{_said(key)}]"
        walk.visit(name, value[key])


def _said(key: object) -> str:
    """Return the representation of a key without addresses, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(key))


def _partial(walk: Walk, path: str, value: functools.partial[Any]) -> None:
    walk.visit(f"{path}.func", value.func)
    for at, item in enumerate(value.args):
        walk.visit(f"{path}.args[{at}]", item)
    for name, item in value.keywords.items():
        walk.visit(f"{path}.{name}", item)


def _python_random(walk: Walk, path: str, value: random.Random) -> None:
    if walk.is_new(path, value, f"rng.{path}"):
        walk.data(path, repr(value.getstate()).encode(), "random.Random", f"rng.{path}", "stream")


def _numpy_generator(walk: Walk, path: str, value: Any) -> None:
    source = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", None) or value
    if walk.is_new(path, value, f"rng.{path}", ("stream", id(source))):
        state = value.get_state(legacy=False) if isinstance(value, np.random.RandomState) else source.state
        walk.data(path, _canonical(state), type(value).__name__, f"rng.{path}", "stream")


def _canonical(state: Any) -> bytes:
    """Return bytes of a nested state: the same for equal states, however they came about."""
    if isinstance(state, dict):
        return b"{" + b",".join(f"{k}:".encode() + _canonical(v) for k, v in sorted(state.items())) + b"}"
    if isinstance(state, np.ndarray):
        return f"{state.dtype}{state.shape}".encode() + digest_of(np.ascontiguousarray(state)).encode()
    return repr(state.item() if isinstance(state, np.generic) else state).encode()


def _generator(walk: Walk, path: str, value: types.GeneratorType[Any, Any, Any]) -> None:
    """Look into a suspended generator: where it is, its variables, and the iterators of its loops."""
    frame = value.gi_frame
    component = component_from_name(path)
    if not walk.is_new(path, value, component):
        return
    walk.leaf(f"{path}.at", frame.f_lasti if frame else -1, component, "position")
    if frame is None or value.gi_running:
        return
    walk.inside_iterator(path)
    live = live_names(frame.f_code, frame.f_lasti)
    for name, item in frame.f_locals.items():
        if name in live:
            _inner(walk, f"{path}.{name}", item)
    for at, iterator in enumerate(loop_iterators(value)):
        _inner(walk, f"{path}.for[{at}]", iterator)


def _inner(walk: Walk, path: str, value: Any) -> None:
    """Show what an iterator holds: numbers and arrays inside of it are its position."""
    if isinstance(value, _SCALARS):
        walk.leaf(path, value, "data.position", "position")
    elif isinstance(value, np.ndarray):
        walk.array(path, value, "data.position", "position")
    elif isinstance(value, list | tuple) and all(type(item) in _SCALARS for item in value):
        walk.data(path, repr(value).encode(), f"{type(value).__name__}[{len(value)}]", "data.position", "position")
    else:
        walk.visit(path, value)


def loop_iterators(generator: types.GeneratorType[Any, Any, Any]) -> list[Any]:
    """Return the iterators of the for-loops in which a suspended generator stands, the outermost first.

    They are on its stack, not among its variables; the garbage collector sees both.
    """
    frame = generator.gi_frame
    if frame is None:
        return []
    local = {id(value) for value in frame.f_locals.values()}
    return [
        one for one in gc.get_referents(generator)
        if id(one) not in local and one is not generator and hasattr(type(one), "__next__")
    ]  # fmt: skip


def _iterator(walk: Walk, path: str, value: Any) -> None:
    """Look into an iterator of the standard library: its position, and what it iterates over."""
    if not walk.is_new(path, value, "data.position"):
        return
    walk.inside_iterator(path)
    if isinstance(value, _RANGES):
        walk.leaf(f"{path}.left", operator.length_hint(value), "data.position", "position")
        return
    hint = getattr(value, "__length_hint__", None)
    if hint is not None:
        walk.leaf(f"{path}.left", hint(), "data.position", "position")
    try:
        parts = value.__reduce__()
    except TypeError:
        parts = None
    if isinstance(parts, tuple) and len(parts) > 2:
        _inner(walk, f"{path}.state", parts[2])
    if isinstance(value, enumerate) and isinstance(parts, tuple):
        walk.leaf(f"{path}.count", parts[1][1], "data.position", "position")
    for at, part in enumerate(gc.get_referents(value)):
        if not isinstance(part, type | types.ModuleType):
            _inner(walk, f"{path}.of[{at}]" if at else f"{path}.of", part)


_RANGES = (type(iter(range(0))), type(iter(range(1 << 70))))


def _counter(walk: Walk, path: str, value: Any) -> None:
    """`itertools.count` shows its next number in its text."""
    if walk.is_new(path, value, component_from_name(path)):
        walk.leaf(f"{path}.next", str(value), component_from_name(path), "position")


def _install() -> None:
    """Register the kinds of this module."""
    constants = (enum.Enum, complex, decimal.Decimal, fractions.Fraction, slice, range, type(...))
    others = (datetime.datetime, datetime.timedelta, np.dtype)
    nothing = (
        logging.Logger, logging.Handler, io.IOBase, threading.Thread, threading.Event, type(threading.Lock()),
        type(threading.RLock()), threading.Condition, weakref.ref, argparse.ArgumentParser, re.Pattern,
        types.CodeType, types.FrameType, types.TracebackType, type, property, staticmethod, classmethod,
        datetime.timezone,
    )  # fmt: skip
    streams = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
    iterators: tuple[Any, ...] = (
        enumerate, zip, map, filter, reversed, type(iter([])), type(iter(())), type(iter({})), type(iter({}.items())),
        type(iter({}.values())), type(iter(set())), type(iter("")), type(iter(int, 1)), type(iter(np.zeros(1))),
        itertools.cycle, itertools.chain, itertools.islice, itertools.zip_longest, itertools.repeat,
        itertools.product, itertools.permutations, itertools.combinations, itertools.starmap, itertools.accumulate,
        itertools.takewhile, itertools.dropwhile, *_RANGES,
    )  # fmt: skip
    rows: tuple[tuple[tuple[Any, ...], Visit, int], ...] = (
        ((*_SCALARS, np.generic), _scalar, 3),
        ((*constants, *others), _text, 3),
        (nothing, _ignore, 3),
        ((list, tuple, collections.deque, collections.UserList), _sequence, 2),
        ((set, frozenset), _set, 3),
        ((dict, types.MappingProxyType, collections.UserDict), _mapping, 2),
        ((np.ndarray,), _array, 3),
        ((functools.partial,), _partial, 3),
        ((random.Random,), _python_random, 3),
        (streams, _numpy_generator, 3),
        ((types.GeneratorType,), _generator, 3),
        (iterators, _iterator, 3),
        ((itertools.count,), _counter, 3),
        ((random.SystemRandom,), Walk.not_seen, 3),
    )
    for kinds, visit, order in rows:
        for kind in kinds:
            register(kind, visit, order=order)


_install()


def capture_python_streams(walk: Walk) -> None:
    """Show the generators that Python and NumPy share in a process."""
    walk.data("random", repr(random.getstate()).encode(), "random.Random", "rng.python", "stream")
    state = np.random.mtrand._rand  # the shared RandomState
    walk.data("numpy.random", _canonical(state.get_state(legacy=False)), "RandomState", "rng.numpy", "stream")
