"""Calls of PyTorch that were kept, made again from those on that are changed: what no change reaches stays as it is.

A program is changed some thousand times where a cause is looked for. To run the user's code each time takes ten times
as long as the calls do that follow from a change. What the calls do not tell alone is not made again here: random
draws, tensors that are written to and read afterwards, other shapes, and choices that fall otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parity.contract import OperationArrays, OperationEdit
from torch_side.probes.edited import array_of, called_with, edited, filled, tensors_in

__all__ = ["CallTape", "CannotReplayError"]


class CannotReplayError(Exception):
    """What follows is told by the user's code alone."""


@dataclass(frozen=True)
class _KeptCall:
    func: Any
    args: tuple[Any, ...]
    given: Mapping[str, Any]
    made: Any
    taken: tuple[torch.Tensor, ...]
    """The tensors in what it is given."""
    results: tuple[torch.Tensor, ...]
    """Those in what it makes."""
    at: int | None
    """Place among the operations; None for a call that makes no tensor, on whose result a choice may hang."""
    sources: tuple[tuple[int, int] | None, ...]
    """Of each tensor that it takes, the call that made it and which of its results it is; None for any other."""
    writes: bool
    """Whether it writes to a tensor that it is given, which nothing reads afterwards."""

    @property
    def returns_written(self) -> bool:
        """Return whether what it gives is what it wrote to, as the count of a batch norm."""
        return self.writes and any(one is two for one in self.results for two in self.taken)


class CallTape:
    """The calls of one run."""

    def __init__(self) -> None:
        self._calls: list[_KeptCall] = []
        self._made: dict[int, tuple[int, int]] = {}
        self._written: set[int] = set()
        self._outputs: list[tuple[torch.Tensor, tuple[int, int] | None]] = []
        self._sound: bool | None = None
        self._edits: Mapping[int, OperationEdit] = {}

    def begin(self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        """Return what must be known before a call to keep it; see `keep`."""
        del func
        taken = tensors_in([*args, *given.values()])
        if any(one.is_inference() for one in taken):
            self._sound = False
        if self._sound is False:
            return None
        if any(_storage(one) in self._written for one in taken):
            self._sound = False  # what it reads is no longer what was made
        return [one._version for one in taken], torch.default_generator.get_state()

    def keep(
        self, before: Any, func: Any, args: tuple[Any, ...], given: Mapping[str, Any], made: Any, at: int | None
    ) -> None:  # fmt: skip
        """Keep a call.

        Args:
            before: What `begin` returned.
            func: What was called.
            args: Its arguments by position.
            given: Those by name.
            made: What is given on in place of what it made.
            at: Place among the operations; None where it makes no tensor.
        """
        if self._sound is False or before is None:
            return
        if at is None and getattr(func, "__name__", "") in _HARMLESS:
            return
        taken = tensors_in([*args, *given.values()])
        written = [one for one, version in zip(taken, before[0], strict=True) if one._version != version]
        results = tensors_in(made)
        if not torch.equal(before[1], torch.default_generator.get_state()):
            self._sound = False
            return
        self._written |= {_storage(one) for one in written}
        sources = tuple(self._made.get(id(one)) for one in taken)
        self._calls.append(
            _KeptCall(func, args, dict(given), made, tuple(taken), tuple(results), at, sources, bool(written))
        )
        for place, one in enumerate(results):
            self._made[id(one)] = len(self._calls) - 1, place

    def end(self, outputs: Sequence[torch.Tensor], edits: Mapping[int, OperationEdit]) -> None:
        """Take what the run gave, and what was changed in it."""
        self._outputs = [(one, self._made.get(id(one))) for one in outputs]
        self._edits = edits
        if any(_storage(one) in self._written for one in outputs):
            self._sound = False

    def replay(
        self, edits: Mapping[int, OperationEdit], at: int | None = None
    ) -> tuple[NDArray[np.float64], ...]:  # fmt: skip
        """Return what the run gives with calls changed; see `parity.contract.TracedProgram.run`.

        Raises:
            CannotReplayError: That must be run.
        """
        if self._sound is None:
            self._sound = self._repeats()
        if not self._sound:
            raise CannotReplayError
        fresh = {place for place, one in edits.items() if self._edits.get(place) is not one}
        new: dict[int, list[torch.Tensor]] = {}
        for number, call in enumerate(self._calls):
            reached = any(source is not None and source[0] in new for source in call.sources)
            if reached or (call.at is not None and call.at in fresh):
                if call.returns_written:
                    raise CannotReplayError
                made = self._called(call, edits.get(call.at) if call.at is not None else None, new)
                if call.at is not None:
                    results = [made] if isinstance(made, torch.Tensor) else tensors_in(made)
                    if [(a.shape, a.dtype) for a in results] != [(b.shape, b.dtype) for b in call.results]:
                        raise CannotReplayError  # the user's code may ask for shapes
                    if not all(map(torch.equal, results, call.results)):
                        new[number] = results
                elif type(made) is not type(call.made) or not _is_plain(made) or made != call.made:
                    raise CannotReplayError  # a choice may fall otherwise
            if call.at is not None and call.at == at:
                return (np.array(array_of(self._result(number, 0, new)), np.float64),)
        return tuple(
            np.array(one.detach().double().numpy() if source is None else array_of(self._result(*source, new)))
            for one, source in self._outputs
        )

    def _result(self, number: int, place: int, new: Mapping[int, list[torch.Tensor]]) -> torch.Tensor:
        return new[number][place] if number in new else self._calls[number].results[place]

    def _taken(self, call: _KeptCall, new: Mapping[int, list[torch.Tensor]]) -> list[torch.Tensor]:
        return [
            one if source is None or source[0] not in new else new[source[0]][source[1]]
            for one, source in zip(call.taken, call.sources, strict=True)
        ]

    def _called(self, call: _KeptCall, edit: OperationEdit | None, new: Mapping[int, list[torch.Tensor]]) -> Any:
        taken = self._taken(call, new)
        tensors = iter([one.clone() for one in taken] if call.writes else taken)
        args = tuple(filled(one, tensors) for one in call.args)
        given = {name: filled(one, tensors) for name, one in call.given.items()}
        if edit is None:
            return call.func(*args, **given)
        held = [self._held(source, new) for source in edit.sources]
        made = called_with(call.func, args, given, edit, held)
        return made if edit.after is None else edited(made, args, given, edit, held)

    def _held(self, at: int, new: Mapping[int, list[torch.Tensor]]) -> OperationArrays:
        """Return what an operation before holds, its results first."""
        number = next(number for number, call in enumerate(self._calls) if call.at == at)
        call = self._calls[number]
        results = [self._result(number, place, new) for place in range(len(call.results))]
        return tuple(map(array_of, (*results, *self._taken(call, new))))

    def _repeats(self) -> bool:
        """Return whether each call gives what it gave when it is made again."""
        for call in self._calls:
            if call.returns_written:
                continue
            try:
                made = self._called(call, self._edits.get(call.at) if call.at is not None else None, {})
            except Exception:  # what it took may be gone, as an iterator is
                return False
            results = tensors_in(made)
            if len(results) != len(call.results) or not all(map(_same, results, call.results)):
                return False
        return True


_HARMLESS = frozenset(("__get__", "size", "dim", "numel", "__len__", "stride", "is_floating_point", "is_complex"))
_HARMLESS |= {"nelement", "ndimension", "element_size", "is_contiguous", "get_device", "__hash__"}
"""Calls that tell nothing of the numbers; shapes are the same whenever calls are made again."""


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _storage(one: torch.Tensor) -> int:
    try:
        return one.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # of a tensor without one
        return id(one)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(
        array_of(a), array_of(b), equal_nan=a.is_floating_point()
    )  # fmt: skip
