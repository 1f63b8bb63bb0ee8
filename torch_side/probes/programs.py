"""A function of PyTorch as a program: every call of PyTorch that it makes, and it again with some of them changed."""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from parity.contract import OperationEdit, ProgramOperation
from parity.errors import SpecError
from torch_side.probes.calls import arrays_in
from torch_side.probes.settings import other_settings

__all__ = ["TorchProgram"]

_OURS = ("torch_side", "torch", "contextlib", "functools")
"""Packages whose frames are no place in a model."""

MOST = 2_000
"""Operations above which a function is not looked at."""


class TorchProgram:
    """See `parity.contract.TracedProgram`.

    Args:
        prepare: Gives the function anew, without arguments; what that returns holds the outputs.
    """

    def __init__(self, prepare: Callable[[], Callable[[], Any]]) -> None:
        self._prepare = prepare
        self._edits: Mapping[int, OperationEdit] = {}
        self._graded = False
        """Whether gradients are recorded, which a function that takes some itself needs."""
        try:
            self._begin(None)
        except (RuntimeError, SpecError):  # of autograd, where nothing was recorded; any other is raised again
            self._graded = True
            self._begin(None)

    def _begin(self, kinds: list[str] | None) -> None:
        watch = _Watch(self._edits, kinds, keep=True)
        made = self._called(watch)
        self.outputs = _arrays(made)
        self.operations = tuple(watch.seen)
        self.complete = len(watch.seen) <= MOST

    def run(
        self, edits: Mapping[int, OperationEdit], at: int | None = None
    ) -> tuple[NDArray[np.float64], ...] | None:
        """Return what it gives with some operations changed; see `parity.contract.TracedProgram`."""
        watch = _Watch({**self._edits, **edits}, self._kinds(), last=at)
        graded = torch.is_grad_enabled()
        try:
            return _arrays(self._called(watch))
        except Exception:  # what was changed need not fit, and anything may follow
            return None if watch.reached is None else (watch.reached,)  # which others wrap in their own
        finally:
            torch.set_grad_enabled(graded)

    def changed(self, edits: Mapping[int, OperationEdit]) -> TorchProgram | None:
        """Return the program with some operations changed; see `parity.contract.TracedProgram`."""
        other = copy.copy(self)
        other._edits = {**self._edits, **edits}
        graded = torch.is_grad_enabled()
        try:
            other._begin(self._kinds())
        except Exception:  # as in `run`
            return None
        finally:
            torch.set_grad_enabled(graded)
        return other

    def _called(self, watch: _Watch) -> Any:
        """Return what it gives under a watch, without the warnings that a change may raise."""
        with warnings.catch_warnings(), torch.set_grad_enabled(self._graded):
            warnings.simplefilter("ignore")
            call = self._prepare()
            with watch:
                return call()

    def _kinds(self) -> list[str]:
        return [one.kind for one in self.operations]


class _Watch(TorchFunctionMode):
    """Keep each call that makes a tensor, or change those that are asked for.

    Args:
        edits: Place of a call to what is done there.
        kinds: What must be called, in order; None where that is to be found out.
        keep: Whether calls are kept.
        last: Place of the call after which nothing is computed.
    """

    def __init__(
        self, edits: Mapping[int, OperationEdit], kinds: list[str] | None, *, keep: bool = False,
        last: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.edits, self.kinds, self.keep, self.last = edits, kinds, keep, last
        self.reached: NDArray[np.float64] | None = None
        self.seen: list[ProgramOperation] = []
        self.at = 0
        self.held: dict[int, tuple[NDArray[Any], ...]] = {}
        self.wanted = {source for one in edits.values() for source in one.sources}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of PyTorch."""
        given = dict(kwargs or {})
        kind = getattr(func, "__name__", str(func))
        if kind == "__get__":  # an attribute, such as `T` or `shape`
            kind = getattr(getattr(func, "__self__", None), "__name__", kind)
        # what makes no tensor has no place: switching gradients on again is never changed
        known = self.kinds is not None and self.at < len(self.kinds) and self.kinds[self.at] == kind
        edit = self.edits.get(self.at) if known else None
        named = _named(func, args, given)
        if edit is None:
            made = func(*args, **given)
        else:
            new_args, new_given = _replaced(args, given, {**edit.numbers, **edit.settings}, named)
            if edit.given is not None:
                held = [self.held[source] for source in edit.sources]
                new_args, new_given = _refilled(new_args, new_given, partial(_given, edit.given, held))
            made = func(*new_args, **new_given)
        if not _tensors(made):
            return made
        at, self.at = self.at, self.at + 1
        if self.kinds is not None:
            if at >= len(self.kinds) or self.kinds[at] != kind:
                raise ValueError("it goes another way")
            if edit is not None and edit.after is not None:
                made = self._edited(made, args, given, edit)
            if at in self.wanted:
                self.held[at] = tuple(map(_array, (*_tensors(made), *_tensors([*args, *given.values()]))))
            if at == self.last:
                self.reached = np.array(_array(_tensors(made)[0]), np.float64)
                raise ValueError("nothing after it is asked for")
        if self.keep and at <= MOST:
            inputs = tuple(map(_array, _tensors([*args, *given.values()])))
            numbers = {key: float(one) for key, one in named.items() if _is_number(one)}
            self.seen.append(
                ProgramOperation(kind, _place(), inputs, tuple(map(_array, _tensors(made))), numbers,
                                 other_settings(kind, args, named),
                                 {"1": args[1]} if kind == "__getitem__" and len(args) > 1 else {},
                                 frozenset(range(at)))
            )  # fmt: skip
        return made

    def _edited(self, made: Any, args: Any, given: Any, edit: OperationEdit) -> Any:
        assert edit.after is not None
        tensors = _tensors(made)
        outputs, inputs = (tuple(map(_array, one)) for one in (tensors, _tensors([*args, *given.values()])))
        new = edit.after(outputs, inputs, [self.held[source] for source in edit.sources])
        fresh = [torch.from_numpy(np.array(one)).to(old.dtype) for one, old in zip(new, tensors, strict=True)]
        if isinstance(made, torch.Tensor):
            if any(made is one for one in args):  # in place
                made.copy_(fresh[0])
                return made
            return fresh[0]
        found = iter(fresh)
        return _filled(made, found)


def _named(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are no tensors, by name, or by place where the function has no names."""
    names: list[str] = []
    if inspect.isfunction(func):
        try:
            names = list(inspect.signature(func).parameters)
        except (TypeError, ValueError):
            names = []
    found = {names[at] if at < len(names) else str(at): one for at, one in enumerate(args)}
    return {**found, **given}


def _replaced(
    args: tuple[Any, ...], given: Mapping[str, Any], settings: Mapping[str, Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with some replaced, by the keys of `_named`."""
    places = list(named)[: len(args)]
    new_args, new_given = list(args), dict(given)
    for key, value in settings.items():
        if key in places:
            new_args[places.index(key)] = value
        else:
            new_given[key] = value
    return tuple(new_args), new_given


def _refilled(args: tuple[Any, ...], given: dict[str, Any], change: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return arguments with the tensors replaced by what a change makes of them."""
    old = _tensors([*args, *given.values()])
    new = change(tuple(map(_array, old)))
    fresh = iter([torch.from_numpy(np.array(one)).to(was.dtype) for one, was in zip(new, old, strict=True)])
    filled = [_filled(one, fresh) for one in args]
    return tuple(filled), {name: _filled(one, fresh) for name, one in given.items()}


def _given(change: Any, held: Any, old: Any) -> Any:
    return change(old, held)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in what a call takes or makes, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [one for held in value for one in _tensors(held)]
    return []


def _filled(value: Any, fresh: Iterator[torch.Tensor]) -> Any:
    """Return containers with other tensors in the same places."""
    if isinstance(value, torch.Tensor):
        return next(fresh)
    if isinstance(value, list | tuple):
        return type(value)(_filled(one, fresh) for one in value) if type(value) in (list, tuple) else tuple(
            _filled(one, fresh) for one in value
        )  # fmt: skip
    return value


def _array(one: torch.Tensor) -> NDArray[Any]:
    one = one.detach()
    if one.is_floating_point():
        one = one.double()
    return np.array(one.resolve_conj().resolve_neg().numpy())


def _arrays(made: Any) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.array(one.detach().double().numpy()) for one in arrays_in(made))


def _place() -> str:
    """Return file and line of the nearest frame that is of the user."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
