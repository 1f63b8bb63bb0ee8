"""Any tree in PyTorch: its containers, its tensors, and the objects that hold state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parity.checkpoints.trees import (
    DTYPES,
    ArrayType,
    HeldArray,
    Opened,
    RestoreRequest,
    SavedPart,
    TreeForm,
    Whole,
    Written,
    open_plain,
    type_name,
)
from parity.errors import CheckpointError
from parity.state import bytes_of
from torch_side.formats.dtensors import box_of, is_split, laid_like, local_of, require_known
from torch_side.formats.group import TorchGroup, group_of
from torch_side.formats.host import room
from torch_side.formats.stateful import is_stateful, state_of, whole_of
from torch_side.formats.tree_files import read_parts, write_parts
from torch_side.formats.tree_shards import JointFileWrite, held_part, read_part

__all__ = ["TorchForm"]

TENSORS = (Tensor, nn.Parameter, nn.Buffer)
"""Classes of tensors; a subclass may have values that are not in its storage."""

WORDS = {1: torch.uint8, 2: torch.int16}
"""Bytes of an element to a type of PyTorch and NumPy alike."""


class TorchForm(TreeForm):
    """Trees of PyTorch: containers, tensors, and modules, optimizers, schedulers, scalers and generators.

    Args:
        request: What a restore was asked for; None for a save.
        device: Where restored tensors go; None for where the template's are, and the CPU without one.
        together: Whether all processes of torch.distributed take part; None for whether a tensor lies in several.
    """

    side = "torch"

    def __init__(
        self,
        request: RestoreRequest | None = None,
        device: torch.device | None = None,
        together: bool | None = None,
    ) -> None:
        self._request, self._device, self._together = request or RestoreRequest(), device, together
        self._given: set[int] = set()
        """Where the tensors lie that were returned: those that were tied are not, unless the template ties them."""

    def group(self, tree: Any) -> TorchGroup | None:
        """Return the processes of torch.distributed, where all of them take part."""
        return group_of(tree, self._together)

    def is_split(self, like: Any) -> bool:
        """Return whether a leaf is a DTensor on several devices."""
        return is_split(like)

    def open_saved(self, name: str, value: Any) -> Opened | None:
        """Take a container apart; an object that holds state is its state."""
        del name
        if is_stateful(value):
            value = state_of(value)
        return None if isinstance(value, Tensor) else open_plain(value)

    def open_template(self, name: str, value: Any) -> Opened | Whole | None:
        """Take a container apart; a module is filled leaf by leaf, other objects take over what was saved."""
        if isinstance(value, nn.Module):
            state = value.state_dict()
            values = tuple(state.values())
            return Opened("dict", tuple(state), values, lambda made: _filled(value, state, made), in_place=True)
        if is_stateful(value):
            return whole_of(name, value, self._request)
        return None if isinstance(value, Tensor) else open_plain(value)

    def describe(self, value: Any) -> ArrayType:
        """Return the type of a tensor or a NumPy array."""
        if isinstance(value, torch.Generator):
            value = value.get_state()
        if type(value) is np.ndarray or isinstance(value, np.generic):
            _require_known(value.dtype)
            return ArrayType(str(value.dtype), value.shape, numpy=True)
        if isinstance(value, DTensor):
            require_known(value)
            if is_split(value) and self._together is False:
                raise TypeError(f"lies in {value.device_mesh.size()} processes, and together=False has one act alone")
        elif type(value) not in TENSORS:
            raise TypeError(f"is a {type_name(value)}, which no checkpoint holds")
        dtype = str(value.dtype).removeprefix("torch.")
        layout = "nested" if value.is_nested else value.layout  # nested ones may say that they are strided
        if layout is not torch.strided or dtype not in DTYPES:
            raise TypeError(f"is a tensor of {value.dtype}, {layout}, which no checkpoint holds")
        return ArrayType(dtype, tuple(value.shape))

    def has_value(self, value: Any) -> bool:
        """Return whether a leaf is more than a tensor on the device `meta`."""
        return not (isinstance(value, Tensor) and value.is_meta)

    def copy(self, values: Mapping[str, Any], spare: Mapping[str, Any]) -> dict[str, Any]:
        """Copy arrays into tensors on the CPU in C order; shared tensors stay shared."""
        copies: dict[Any, Tensor] = {}
        taken: set[int] = set()
        parts: dict[int, HeldArray] = {}

        def each(value: Any, old: Any) -> Any:
            if not isinstance(value, DTensor):
                return _copied(value, old, copies, taken)
            local = _copied(local_of(value), old.live if isinstance(old, HeldArray) else old, copies, taken)
            if not is_split(value):
                return local
            found = parts.get(id(local)) or held_part(value, local, self.neutral(local), local)
            return parts.setdefault(id(local), found)

        return {name: each(value, spare.get(name)) for name, value in values.items()}

    def neutral(self, copied: Any) -> NDArray[np.generic]:
        """Return a tensor as an array; one of a type that NumPy does not know as bytes that have its name."""
        tensor = copied.detach()
        try:
            array: NDArray[np.generic] = tensor.numpy()
        except TypeError:
            size = tensor.element_size()
            words = tensor.view(WORDS[size]).numpy()
            return words.view(bytes_of(str(tensor.dtype).removeprefix("torch."), size))
        return array

    def write(
        self, draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any], texts: Mapping[str, str]
    ) -> Written:
        """Write each part with `torch.save`, or as JSON."""
        del texts
        return write_parts(draft, parts, values)

    def begin_together(self, draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any]) -> JointFileWrite:
        """Write the same files together, each process what it holds; nothing of it is done yet."""
        return JointFileWrite(draft, list(parts), values, self.neutral)

    def read(
        self, path: Path, parts: Iterable[SavedPart], names: set[str], likes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Read tensors onto the CPU; parts of them as DTensors that lie as those of the template."""
        cuts = {name: lambda whole, like=like: read_part(whole, like, self.neutral) for name, like in likes.items()}
        return read_parts(path, parts, names, self.describe, cuts)

    def adopt(self, array: NDArray[np.generic]) -> Any:
        """Return a tensor of the memory of the array; one of a type that NumPy lends from ml_dtypes by its bytes."""
        name, size = array.dtype.name, array.dtype.itemsize
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise CheckpointError(f"the checkpoint holds an array of {name}, which PyTorch does not have")
        try:
            return torch.from_numpy(array)
        except TypeError:
            words = array.reshape(-1).view("u1" if size == 1 else f"i{size}")
            return torch.from_numpy(words).view(dtype).reshape(array.shape)

    def place(self, value: Any, to: ArrayType, permute: tuple[int, ...], like: Any) -> Any:
        """Return a leaf with the type of the template's, on its device or on the one that was asked for."""
        dtype = getattr(torch, to.dtype)
        if isinstance(value, HeldArray):
            return _as_leaf(value.live.to(dtype), like)
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype)
        if permute:
            tensor = tensor.permute(permute)
        tensor = tensor.contiguous().reshape(to.shape).to(dtype)
        if isinstance(like, DTensor):
            box = box_of(like)
            own = tensor.reshape(-1)[:0] if box is None else tensor[tuple(slice(low, high) for low, high in box)]
            return _as_leaf(laid_like(like, own), like)
        if not isinstance(like, Tensor):
            return tensor.numpy()[()] if isinstance(like, np.generic) else tensor.numpy()
        tensor = tensor.to(self._device or (torch.device("cpu") if like.is_meta else like.device))
        if tensor.data_ptr() in self._given:
            tensor = tensor.clone()
        self._given.add(tensor.data_ptr())
        return _as_leaf(tensor, like)

    def raw(self, value: Any, kind: ArrayType) -> Any:
        """Return a tensor, or the NumPy array that was saved."""
        return value.numpy() if kind.numpy else value.to(self._device or torch.device("cpu"))


def _as_leaf(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a tensor as a parameter where the template has one, and with its `requires_grad`."""
    if isinstance(like, nn.Parameter):
        return nn.Parameter(tensor, requires_grad=like.requires_grad)
    return tensor.requires_grad_(like.requires_grad)


def _filled(module: nn.Module, state: Mapping[str, Any], made: list[Any]) -> nn.Module:
    """Load a state into a module, in place; one without values takes the new tensors themselves."""
    abstract = any(isinstance(value, Tensor) and value.is_meta for value in state.values())
    module.load_state_dict(dict(zip(state, made, strict=True)), strict=True, assign=abstract)
    return module


def _require_known(dtype: np.dtype[Any]) -> None:
    try:
        torch.from_numpy(np.empty(0, dtype))
    except (TypeError, ValueError) as error:
        raise TypeError(f"is an array of {dtype}, which PyTorch does not have") from error


def _copied(value: Any, spare: Any, copies: dict[Any, Tensor], taken: set[int]) -> Tensor:
    if isinstance(value, torch.Generator):
        return value.get_state().clone()
    if not isinstance(value, Tensor):
        return torch.from_numpy(np.array(value, order="C"))
    live = value.detach()
    key = (live.data_ptr(), live.shape, live.stride(), live.dtype, live.device)
    if key in copies and live.numel():
        return copies[key]
    fits = isinstance(spare, Tensor) and (spare.shape, spare.dtype) == (live.shape, live.dtype)
    reused = spare if fits and id(spare) not in taken else room(live)
    taken.add(id(reused))
    reused.copy_(live)
    copies[key] = reused
    return reused
