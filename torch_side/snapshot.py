"""A copy of the full training state, which is written while training continues."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from parity.twins import Layout
from torch_side.formats.host import room
from torch_side.state import LiveState, file_state, neutral_arrays

__all__ = ["Snapshot"]


class Snapshot:
    """A copy of the full training state on the host, beside which training continues.

    Takes one copy of the state in memory; given the snapshot of the save before, it copies into that one's buffers,
    whose pages are there already.
    """

    def __init__(self, layout: Layout, state: LiveState, spare: Snapshot | None = None) -> None:
        self._layout, self._names = layout, state.names
        self._tensors: list[Tensor] = []
        self._copies: dict[tuple[Any, ...], Tensor] = {}
        self._spare = iter(spare._tensors if spare else ())
        self.content: dict[str, Any] = self._copied(file_state(state))
        """What is written."""
        self._copies.clear()  # the keys are addresses of live tensors

    @property
    def size(self) -> int:
        """Return the bytes of its arrays."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def neutral(self) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
        """Return the neutral arrays, views of the copies, and the scalars."""
        return neutral_arrays(self._layout, self._names, self.content)

    def records(self) -> dict[str, int]:
        """Return neutral leaf to the number of the record that `torch.save` writes its bytes to."""
        numbers = {tensor.data_ptr(): number for number, tensor in enumerate(self._tensors)}
        arrays, _ = self.neutral()
        return {leaf: numbers[a.ctypes.data] for leaf, a in arrays.items() if a.ctypes.data in numbers}

    def _copied(self, value: Any) -> Any:
        """Copy containers and tensors in the order in which pickling meets them; shared tensors stay shared."""
        if isinstance(value, Tensor):
            key = (value.data_ptr(), value.shape, value.stride(), value.dtype)
            if key not in self._copies or not value.numel():
                self._copies[key] = self._copied_tensor(value.detach())
            return self._copies[key]
        if isinstance(value, dict):
            return {name: self._copied(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copied(item) for item in value)
        return value

    def _copied_tensor(self, value: Tensor) -> Tensor:
        spare = next(self._spare, None)
        fits = spare is not None and spare.shape == value.shape and spare.dtype == value.dtype
        copy = spare if spare is not None and fits else room(value)
        copy.copy_(value)
        self._tensors.append(copy)
        return copy
