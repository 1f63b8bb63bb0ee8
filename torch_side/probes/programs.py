"""A function of PyTorch as a program: every call of PyTorch that it makes, and it again with some of them changed."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from parity.contract import OperationEdit, ProgramOperation, expression_at
from parity.errors import SpecError
from torch_side.probes.calls import arrays_in
from torch_side.probes.edited import array_of, called_with, edited, named_arguments, tensors_in
from torch_side.probes.replays import CallTape, CannotReplayError
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
        watch.tape.end(list(arrays_in(made)), self._edits)
        self._tape = None if self._graded else watch.tape
        self.operations = tuple(watch.seen)
        self.complete = len(watch.seen) <= MOST

    def run(
        self, edits: Mapping[int, OperationEdit], at: int | None = None
    ) -> tuple[NDArray[np.float64], ...] | None:
        """Return what it gives with some operations changed; see `parity.contract.TracedProgram`."""
        edits = {**self._edits, **edits}
        if self._tape is not None:
            try:
                return self._replayed(self._tape, edits, at)
            except CannotReplayError:
                pass
            except Exception:  # as below
                return None
        watch = _Watch(edits, self._kinds(), last=at)
        graded = torch.is_grad_enabled()
        try:
            return _arrays(self._called(watch))
        except Exception:  # what was changed need not fit, and anything may follow
            return None if watch.reached is None else (watch.reached,)  # which others wrap in their own
        finally:
            torch.set_grad_enabled(graded)

    def _replayed(
        self, tape: CallTape, edits: Mapping[int, OperationEdit], at: int | None
    ) -> tuple[NDArray[np.float64], ...]:
        """Return what the calls that were kept give with some changed; see `CallTape.replay`."""
        before = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)  # as where it was prepared
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                return tape.replay(edits, at)
        finally:
            torch.set_default_dtype(before)

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

    def way_back(self, leaves: Sequence[str], weights: Sequence[NDArray[np.float64]]) -> None:
        """Return nothing: its gradients are not computed by operation; see `parity.contract.TracedProgram`."""

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
        self.tape = CallTape()

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
        named = named_arguments(func, args, given)
        before = self.tape.begin(func, args, given) if self.keep else None
        if edit is None:
            made = func(*args, **given)
        else:
            made = called_with(func, args, given, edit, [self.held[source] for source in edit.sources])
        if not tensors_in(made):
            if self.keep:
                self.tape.keep(before, func, args, given, made, None)
            return made
        at, self.at = self.at, self.at + 1
        if self.kinds is not None:
            if at >= len(self.kinds) or self.kinds[at] != kind:
                raise ValueError("it goes another way")
            if edit is not None and edit.after is not None:
                made = edited(made, args, given, edit, [self.held[source] for source in edit.sources])
            if at in self.wanted:
                self.held[at] = tuple(map(array_of, (*tensors_in(made), *tensors_in([*args, *given.values()]))))
            if at == self.last:
                self.reached = np.array(array_of(tensors_in(made)[0]), np.float64)
                raise ValueError("nothing after it is asked for")
        if self.keep:
            self.tape.keep(before, func, args, given, made, at)
        if self.keep and at <= MOST:
            inputs = tuple(map(array_of, tensors_in([*args, *given.values()])))
            numbers = {key: float(one) for key, one in named.items() if _is_number(one)}
            frame = _frame()
            self.seen.append(
                ProgramOperation(kind, _place(frame), inputs, tuple(map(array_of, tensors_in(made))), numbers,
                                 other_settings(kind, args, named),
                                 {"1": args[1]} if kind == "__getitem__" and len(args) > 1 else {},
                                 frozenset(range(at)), text=expression_at(frame.f_code, frame.f_lasti))
            )  # fmt: skip
        return made


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _arrays(made: Any) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.array(one.detach().double().numpy()) for one in arrays_in(made))


def _frame() -> FrameType:
    """Return the nearest frame that is of the user."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
    return frame


def _place(frame: FrameType) -> str:
    """Return file and line of a frame."""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
