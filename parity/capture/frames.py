"""What a training loop can reach at a mark: variables of its frames, globals it names, generators that all share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

from parity.capture.delegation import delegated_to
from parity.capture.iterators import loop_iterators
from parity.capture.leaf import Leaf, StateSnapshot
from parity.capture.liveness import live_names
from parity.capture.modules import show_modules
from parity.capture.names import component_from_name
from parity.capture.process import show_process
from parity.capture.registry import LIBRARY_ROOTS, is_a
from parity.capture.streams import capture_python_streams
from parity.capture.walk import Walk

__all__ = ["Scope", "ambient", "capture", "frames_of", "outer_scopes", "scopes_of"]

Ambient = Callable[[Walk], None]
_PLAIN = (bool, int, float, str, type(None))
_ambient: list[Ambient] = [capture_python_streams, show_process]
"""Functions that show a walk the state that all code of a process shares."""


def ambient(show: Ambient) -> None:
    """Add a function that shows a walk state that the whole process shares."""
    if show not in _ambient:
        _ambient.append(show)


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables of one frame, at one instruction."""

    name: str
    """Prefix of its paths: empty for the innermost frame, the function's name for those around it."""
    code: CodeType
    lasti: int
    local: Mapping[str, Any]
    shared: Mapping[str, Any]
    """The globals of its module."""
    iterators: Sequence[Any] = ()
    """Iterators of its loops, where they can be seen."""
    dead: frozenset[str] = frozenset()
    """Variables that are not read any more, besides those of which the code says so; they are walked last."""

    @classmethod
    def of(cls, frame: FrameType, name: str = "", iterators: Sequence[Any] = ()) -> Scope:
        """Return the variables of a frame as they are now; `name` and `iterators` become the fields."""
        return cls(name, frame.f_code, frame.f_lasti, dict(frame.f_locals), frame.f_globals, iterators)


def frames_of(generator: GeneratorType[Any, Any, Any]) -> list[FrameType]:
    """Return the frames of a suspended generator and of those it has left its work to, the innermost first."""
    return [one.gi_frame for one in _chain(generator) if one.gi_frame is not None]


def _chain(generator: GeneratorType[Any, Any, Any]) -> list[GeneratorType[Any, Any, Any]]:
    chain, inner = [generator], delegated_to(generator)
    while inner is not None and inner not in chain:
        chain.append(inner)
        inner = delegated_to(inner)
    return chain[::-1]


def scopes_of(generator: GeneratorType[Any, Any, Any]) -> list[Scope]:
    """Return the variables of a suspended generator and of those it has left its work to, the innermost first."""
    chain, found = _chain(generator), []
    for at, one in enumerate(chain):
        if one.gi_frame is not None:
            iterators = [i for i in loop_iterators(one) if i not in chain]
            found.append(Scope.of(one.gi_frame, one.gi_code.co_name if at else "", iterators))
    return found


def outer_scopes(frame: FrameType, last: CodeType | None) -> list[Scope]:
    """Return a frame and those around it, up to that of a function; only the first if it is not among them.

    Args:
        frame: The innermost frame.
        last: Code of the function; None for the first frame alone.
    """
    found, around = [Scope.of(frame)], frame
    while last is not None and around.f_code is not last:
        if around.f_back is None:
            return found[:1]
        around = around.f_back
        found.append(Scope.of(around, around.f_code.co_name))
    return found


def capture(
    scopes: Sequence[Scope],
    state: Mapping[str, Any] | None = None,
    *,
    hide: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    walk: Walk | None = None,
    finite: bool = False,
) -> StateSnapshot:
    """Walk what frames reach.

    Args:
        scopes: The frames, the innermost first.
        state: Variables that are the state; the frames then count for nothing.
        hide: Texts that differ between equal runs, to what stands for them.
        keep: Paths whose values are wanted.
        walk: A walk of one's own that has been given nothing yet, instead of one with `hide` and `keep`.
        finite: Whether floating arrays are searched for NaN and infinity.

    Returns:
        Every leaf once, at the first path that leads to it; live variables lead, modules before optimizers.
    """
    walk = Walk(hide, keep, finite=finite) if walk is None else walk
    dead: set[str] = set()
    if state:
        for name, value in state.items():
            walk.root(name, value)
    else:
        for scope in sorted(scopes, key=_is_library):  # the user's own variables give the paths
            prefix = f"{scope.name}()." if scope.name else ""
            live = live_names(scope.code, scope.lasti) - scope.dead
            # an `except` clause may keep a number (`try: limit = plan[n]`); arrays of a step are made anew
            kept = live_names(scope.code, scope.lasti, clauses=True) - live - scope.dead
            live |= {name for name in kept if is_a(scope.local.get(name), *_PLAIN)}
            if not scope.code.co_flags & inspect.CO_GENERATOR:  # what a callback was given lives on with its caller
                live |= {name for name in _parameters(scope.code) if not _is_value(scope.local.get(name))}
            for name, value in scope.local.items():
                if name.startswith(("__", "@")) or (_is_library(scope) and is_a(value, *_PLAIN)):
                    continue  # what a framework counts in its own variables, nobody else can save
                if name not in live:
                    dead.add(prefix + name)
                walk.root(prefix + name, value, dead=name not in live)
                if is_a(value, type):  # the precision or the class that a variable chooses: `dtype = np.float16`
                    _show_class(walk, prefix + name, value)
            for at, iterator in enumerate(scope.iterators):
                walk.root(f"{prefix}for[{at}]", iterator)
        _show_globals(walk, scopes)
    for show in _ambient:
        show(walk)
    snapshot = walk.finish()
    snapshot.dead |= dead
    return snapshot


def _show_class(walk: Walk, path: str, cls: type) -> None:
    chosen = f"{cls.__module__}.{cls.__qualname__}"
    walk.add(path, Leaf("scalar", component_from_name(path), "type", chosen), lambda: chosen)


def _show_globals(walk: Walk, scopes: Sequence[Scope]) -> None:
    """Show the globals that the loop's code names, by their names; then those of all modules of the user."""
    shown: set[str] = set()
    by_module: dict[str, frozenset[str]] = {}
    for scope in scopes:
        if _is_library(scope):
            continue
        found = _globals_of(scope.code, scope.shared)
        for name, value in found.items():
            if name not in shown and name not in scope.local:
                shown.add(name)
                walk.root(name, value)
        module = str(scope.shared.get("__name__", ""))
        by_module[module] = by_module.get(module, frozenset()) | found.keys()
    if by_module:
        show_modules(walk, by_module, by_module)


def _parameters(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's parameters."""
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more]


def _is_value(value: Any) -> bool:
    """Return whether a variable holds a result, not an object that others hold too and that lives on."""
    return is_a(value, *_PLAIN, tuple, list) or (hasattr(type(value), "dtype") and hasattr(type(value), "shape"))


def _is_library(scope: Scope) -> bool:
    """Return whether a frame is of a framework's own loop, around the user's callback."""
    return str(scope.shared.get("__name__", "")).partition(".")[0] in LIBRARY_ROOTS


def _globals_of(code: CodeType, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the globals that code names, and those that functions and classes of the same module name in turn."""
    found: dict[str, Any] = {}
    waiting, done = [code], set()
    while waiting:
        one = waiting.pop()
        if one in done:
            continue
        done.add(one)
        waiting += [const for const in one.co_consts if isinstance(const, CodeType)]
        for name in one.co_names:
            value = shared.get(name)
            if name in found or name not in shared or is_a(value, ModuleType):
                continue
            if isinstance(value, FunctionType):
                if (value.__module__ or "").partition(".")[0] not in LIBRARY_ROOTS and value.__globals__ is shared:
                    waiting.append(value.__code__)
            elif is_a(value, type):
                if value.__module__ == shared.get("__name__"):
                    methods = [m for m in vars(value).values() if isinstance(m, FunctionType)]
                    waiting += [method.__code__ for method in methods]
            else:
                found[name] = value
    return found
