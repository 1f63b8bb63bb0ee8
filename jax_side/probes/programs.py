"""A function of JAX as a program: the equations of its trace one by one, and it again with some of them changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval
from numpy.typing import NDArray

from jax_side.probes.arithmetic import by_numpy
from jax_side.probes.backward import JaxWayBack
from jax_side.probes.equations import other_parameters
from jax_side.probes.islands import apply_wide
from jax_side.probes.traces import body_of, evaluate_trace, inner_traces
from parity.contract import Island, OperationEdit, ProgramOperation, expression_at

__all__ = ["JaxProgram"]

MOST = 2_000
"""Equations above which a function is not looked at."""

MOST_TURNS = 64
"""Turns of a loop above which its body is one operation."""

_UNNAMED = {"_where", "<lambda>", "wrapped", "fn", "run"}


class JaxProgram:
    """See `parity.contract.TracedProgram`.

    Args:
        function: Of arrays in containers, which returns a list of float arrays.
        args: What it is called with.

    Raises:
        TypeError: It cannot be traced with them.
    """

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        with jax.enable_x64(True):
            self._closed = _without_dead(jax.make_jaxpr(function)(*args))
            self._args = jax.tree.leaves(args)
        self.complete = _count(self._closed.jaxpr) <= MOST
        self.operations: tuple[ProgramOperation, ...] = ()
        self._edits: Mapping[int, OperationEdit] = {}
        if self.complete:
            self._begin()

    def _begin(self) -> None:
        self._first = _Evaluator(self._edits, None)
        self.outputs = self._run(self._first)
        self.operations = tuple(self._first.seen)

    def run(
        self, edits: Mapping[int, OperationEdit], at: int | None = None
    ) -> tuple[NDArray[np.float64], ...] | None:
        """Return what it gives with some operations changed; see `parity.contract.TracedProgram`."""
        try:
            return self._run(_Evaluator({**self._edits, **edits}, self._first, self._edits, at))
        except _ReachedError as reached:
            return (reached.value,)
        except Exception:  # what was changed need not fit, and anything may follow
            return None

    def changed(self, edits: Mapping[int, OperationEdit]) -> JaxProgram | None:
        """Return the program with some operations changed; see `parity.contract.TracedProgram`."""
        other = copy.copy(self)
        other._edits = {**self._edits, **edits}
        try:
            other._begin()
        except Exception:  # as in `run`
            return None
        return other

    def way_back(self, leaves: Sequence[str], weights: Sequence[NDArray[np.float64]]) -> JaxWayBack | None:
        """Return its gradient by its leaves; see `parity.contract.TracedProgram`."""
        try:
            return JaxWayBack(self._closed, self._args, sorted(leaves), self._first.places, weights)
        except Exception:  # as in `run`
            return None

    def _run(self, evaluator: _Evaluator) -> tuple[NDArray[np.float64], ...]:
        with jax.enable_x64(True), np.errstate(all="ignore"):
            made = evaluator.evaluate((), self._closed.jaxpr, self._closed.consts, self._args)
            return tuple(np.array(one, np.float64) for one in made)


class _ReachedError(Exception):
    """The value that was asked for is computed."""

    def __init__(self, value: NDArray[np.float64]) -> None:
        super().__init__()
        self.value = value


class _Evaluator:
    """Computes a trace equation by equation.

    Args:
        edits: Place of an operation to what is done there.
        first: One that has computed it before: what follows from the same values is not computed again. None where
            operations are to be kept.
        same: Edits with which that was done.
        last: Place of the operation after which nothing is computed.
    """

    def __init__(
        self, edits: Mapping[int, OperationEdit], first: _Evaluator | None,
        same: Mapping[int, OperationEdit] | None = None, last: int | None = None,
    ) -> None:  # fmt: skip
        self.edits, self.keep, self.last = edits, first is None, last
        self.seen: list[ProgramOperation] = []
        self.places: dict[tuple[Any, ...], int] = {} if first is None else first.places
        self.memory: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}
        self.known = {} if first is None else first.memory
        new = {at for at, one in edits.items() if (same or {}).get(at) is not one}
        new |= {source for one in edits.values() for source in one.sources} | ({last} if last is not None else set())
        paths = [path for path, at in self.places.items() if at in new] if first is not None else []
        self.touched = {path[:n] for path in paths for n in range(1, len(path) + 1)}
        """Equations that must be computed, and those inside which one of them is."""
        self.held: dict[int, tuple[NDArray[Any], ...]] = {}
        self.wanted = {source for one in edits.values() for source in one.sources}
        self.scopes: list[list[int]] = [[]]
        self.callers: list[str] = []
        """Of each function that is gone through, the line that called it; empty where its own are of the user."""
        self.second: list[bool] = []
        """Of each loop that is gone through, whether it is in the turn that is kept: the second, if it has one."""
        self.found: dict[tuple[str, str], Island] = {}
        """Casts that were left out; not looked at."""

    def evaluate(self, path: tuple[Any, ...], jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Return what a trace gives."""
        return evaluate_trace(
            jaxpr, consts, args, lambda number, eqn, values: self._equation((*path, number), eqn, values)
        )

    def _equation(self, path: tuple[Any, ...], eqn: Any, values: list[Any]) -> list[Any]:
        before = self.known.get(path)
        if before is not None and path not in self.touched:
            given, made = before
            if all(a is b for a, b in zip(given, values, strict=True)):
                return list(made)
        given = list(values)
        made = self._computed(path, eqn, values)
        if self.keep:
            self.memory[path] = given, list(made)
        return made

    def _computed(self, path: tuple[Any, ...], eqn: Any, values: list[Any]) -> list[Any]:
        name, kind = eqn.primitive.name, eqn.primitive.name
        if (body := body_of(eqn)) is not None:
            self.callers.append(self._place(eqn) if _is_of_library(body[0], str(eqn.params.get("name", ""))) else "")
            made = self.evaluate(path, *body, values)
            self.callers.pop()
            kind = str(eqn.params.get("name", ""))
            if not kind or kind in _UNNAMED or len(body[0].eqns) < 2:
                return made
            return self._operation(path, kind, eqn, values, lambda _: made)
        if name == "scan" and eqn.params["length"] <= MOST_TURNS:
            return self._scan(path, eqn, values)
        return self._operation(path, kind, eqn, values, lambda changed: self._compute(changed, values))

    def _operation(
        self, path: tuple[Any, ...], kind: str, eqn: Any, values: list[Any], compute: Callable[[Any], list[Any]]
    ) -> list[Any]:
        at = self.places.setdefault(path, len(self.places))
        edit = self.edits.get(at)
        literals = {
            str(place): atom.val
            for place, atom in enumerate(eqn.invars)
            if isinstance(atom, core.Literal) and np.ndim(atom.val) == 0
        }
        changed, taken = eqn, list(values)
        if edit is not None:
            for key, value in edit.numbers.items():
                values[int(key)] = np.asarray(value, np.asarray(values[int(key)]).dtype)
            if edit.given is not None:
                new = edit.given(_arrays(values), [self.held[one] for one in edit.sources])
                values[:] = [np.asarray(one, np.asarray(old).dtype) for one, old in zip(new, values, strict=True)]
            if edit.settings:
                changed = eqn.replace(params={**eqn.params, **edit.settings})
        made = compute(changed)
        if edit is not None and edit.after is not None:
            new = edit.after(_arrays(made), _arrays(values), [self.held[one] for one in edit.sources])
            made = [np.asarray(one, np.asarray(old).dtype) for one, old in zip(new, made, strict=True)]
        if at in self.wanted:
            self.held[at] = _arrays((*made, *taken))
        if at == self.last and all(self.second):
            raise _ReachedError(np.array(_arrays(made)[0], np.float64))
        if self.keep and at < len(self.seen):  # a further turn of a loop
            one = self.seen[at]
            now, kept = (_arrays(values), _arrays(made)), (one.inputs, one.outputs)
            if all(self.second):
                now, kept = kept, now
            self.seen[at] = replace(one, inputs=kept[0], outputs=kept[1], turns=(*one.turns, now[1]))
        elif self.keep:
            numbers = {key: float(one) for key, one in literals.items() if np.isfinite(one)} if kind == (
                eqn.primitive.name
            ) else {}  # fmt: skip
            exchanged = {key: eqn.params[key] for key in ("start_indices", "limit_indices", "strides")
                         if kind == "slice"}  # fmt: skip
            before = frozenset(place for scope in self.scopes for place in scope)
            self.seen.append(
                ProgramOperation(kind, self._place(eqn), _arrays(values), _arrays(made), numbers,
                                 other_parameters(eqn), exchanged, before, text=self._text(eqn))
            )  # fmt: skip
            self.scopes[-1].append(at)
        return made

    def _place(self, eqn: Any) -> str:
        """Return the line of the user that asked for an equation.

        A function of a library that is compiled by itself is traced once: its equations tell the first call.
        """
        return next((one for one in self.callers if one), "") or _short(eqn)

    def _text(self, eqn: Any) -> str:
        """Return what of that line asked for an equation; empty for those of a function that is traced once."""
        return "" if any(self.callers) else _expression(eqn)

    def _compute(self, eqn: Any, values: list[Any]) -> list[Any]:
        """Return what an equation gives, by NumPy where that knows it."""
        numbers = [_plain(one) for one in values]
        if all(one is not None for one in numbers):
            made = by_numpy(eqn.primitive.name, eqn.params, numbers)  # type: ignore[arg-type]
            if made is not None:
                return made
        given = [one if plain is None else jnp.asarray(one) for one, plain in zip(values, numbers, strict=True)]
        return apply_wide(eqn, given, self.found)

    def _scan(self, path: tuple[Any, ...], eqn: Any, values: list[Any]) -> list[Any]:
        """Return what a scan gives, turn by turn."""
        params = eqn.params
        count, carried, length = params["num_consts"], params["num_carry"], params["length"]
        body, consts = params["jaxpr"], values[:count]
        carry, rest = list(values[count : count + carried]), values[count + carried :]
        turns: list[list[Any]] = []
        self.scopes.append([])
        order = range(length - 1, -1, -1) if params["reverse"] else range(length)
        for number, turn in enumerate(order):
            self.second.append(number == min(1, length - 1))
            made = self.evaluate(path, body.jaxpr, body.consts, [*consts, *carry, *[one[turn] for one in rest]])
            self.second.pop()
            carry = made[:carried]
            turns.append(made[carried:])
        self.scopes.pop()
        if params["reverse"]:
            turns.reverse()
        shapes = [atom.aval for atom in eqn.outvars[carried:]]
        if not turns:
            return [*carry, *[np.zeros(one.shape, one.dtype) for one in shapes]]
        return [*carry, *[np.stack(list(map(np.asarray, column))) for column in zip(*turns, strict=True)]]


def _arrays(values: Sequence[Any]) -> tuple[NDArray[Any], ...]:
    """Return arrays of NumPy; what is not one, such as a key of random numbers, as an empty one."""
    return tuple(
        np.zeros(0) if jnp.issubdtype(getattr(one, "dtype", np.float64), jax.dtypes.extended) else _wide(one)
        for one in values
    )


def _plain(value: Any) -> NDArray[Any] | None:
    """Return an array of NumPy, a floating one in float64; None for all else, such as a key of random numbers."""
    if jnp.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.extended):
        return None
    return _wide(value)


def _wide(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _without_dead(closed: Any) -> Any:
    """Return a trace without what none of its results is made of: it would pass for what the other program has."""
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return closed.replace(jaxpr=jaxpr)


def _count(jaxpr: Any) -> int:
    return len(jaxpr.eqns) + sum(_count(one) for eqn in jaxpr.eqns for one in inner_traces(eqn))


def _frames(eqn: Any) -> list[Any]:
    traceback = eqn.source_info.traceback
    return list(traceback.frames) if traceback else []


def _file(frame: Any) -> str:
    return str(frame.file_name).replace("\\", "/")


def _is_library(frame: Any) -> bool:
    return any(f"/{one}/" in _file(frame) for one in ("jax", "flax", "optax", "jax_side", "equinox", "haiku"))


def _is_of_library(jaxpr: Any, name: str) -> bool:
    """Return whether the function that a trace is of is one of a library, told by the frame of that name."""
    frames = [frame for eqn in jaxpr.eqns[:1] for frame in _frames(eqn)]
    return next(
        (_is_library(one) for one in frames if one.function_name in (name, f"_{name}", name.lstrip("_"))), False
    )


def _short(eqn: Any) -> str:
    """Return file and line of the nearest frame that is of the user."""
    for frame in _frames(eqn):
        if not _is_library(frame):
            return f"{_file(frame).rpartition('/')[2]}:{frame.line_num}"
    return "a place that the trace does not tell"


def _expression(eqn: Any) -> str:
    """Return what of the line of `_short` asked for an equation; empty where the trace does not tell."""
    traceback = eqn.source_info.traceback
    if not traceback:
        return ""
    for frame, code, instruction in zip(traceback.frames, *traceback.raw_frames(), strict=False):
        if not _is_library(frame):
            return expression_at(code, instruction)
    return ""
