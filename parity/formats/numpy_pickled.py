"""NumPy's scalars and arrays as a pickle has them, read as numbers and arrays; what neither holds stays an object.

A pickle describes an array in two steps, an empty one and its state, and so the type of its elements. Times, records,
texts and objects have no place in a tree of arrays: read as numbers, a time would lose its unit or become None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.formats.array import InMemory, dtype_named
from parity.formats.pickle_values import Completed, Global
from parity.formats.tree import Opaque

__all__ = ["NUMPY_CALLS", "ReadOtherwise"]

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")

_NUMBERS = (bool, int, float, complex, str, bytes)
"""What a scalar may come back as; a long double, of more digits than Python's float, is none of them."""


class _PickledDtype(Completed):
    """A dtype on the stack of the machine; its state gives the byte order."""

    def __init__(self, name: Any) -> None:
        text = name.name.removeprefix("ml_dtypes.") if isinstance(name, Global) else str(name)
        self.text, self.state = text, None
        self.dtype: np.dtype[Any] | None = dtype_named(text)
        if self.dtype is None:
            try:
                self.dtype = np.dtype(text) if len(text) <= 8 else None  # such as f4, b1, U12
            except (TypeError, ValueError, SyntaxError):
                self.dtype = None

    def set_state(self, state: Any) -> None:
        """Take the byte order; the unit of a time and the fields of a record are in the state too."""
        self.state = state
        if self.dtype is not None and isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])

    def completed(self) -> Opaque:
        """Return what stands for a dtype that is a leaf by itself."""
        return Opaque("numpy.dtype", [self.text, self.state])


class _PickledArray(Completed):
    """An array that is made empty, then filled."""

    def __init__(self) -> None:
        self.made: InMemory | Opaque = InMemory(np.zeros(0))

    def set_state(self, state: Any) -> None:
        """Take the shape, the dtype and the elements."""
        _, shape, described, fortran, data = state
        dtype = described.dtype if isinstance(described, _PickledDtype) else None
        if dtype is None or not _is_number(dtype):
            kind = "objects" if dtype is None or dtype.kind == "O" else dtype.name
            self.made = Opaque(f"numpy.ndarray of {kind}", [shape, described, fortran, data])
            return
        flat = np.frombuffer(_raw(data), dtype)
        flat = flat.astype(flat.dtype.newbyteorder("="))
        self.made = InMemory(flat.reshape(tuple(shape), order="F" if fortran else "C"))

    def completed(self) -> InMemory | Opaque:
        """Return the array."""
        return self.made


def _from_buffer(data: Any, described: Any, shape: Any, order: Any, *rest: Any) -> _PickledArray:
    """Return an array as protocol 5 describes it, in one step."""
    made = _PickledArray()
    made.set_state((1, shape, described, order == "F", data))
    return made


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype_named(dtype.name) is not None)


def _raw(data: Any) -> bytes:
    return data.encode("latin1") if isinstance(data, str) else data


def _scalar(described: Any, data: Any = b"") -> Any:
    dtype = described.dtype if isinstance(described, _PickledDtype) else None
    if dtype is not None and (_is_number(dtype) or dtype.kind in "SU"):
        value = np.frombuffer(_raw(data), dtype)[0].item() if dtype.itemsize else dtype.type().item()
        if type(value) in _NUMBERS:
            return value
    return Opaque(f"numpy.{'generic' if dtype is None else dtype.name}", [described, data])


NUMPY_CALLS: Mapping[str, Callable[..., Any]] = {
    **{f"{module}._reconstruct": lambda *args: _PickledArray() for module in _MULTIARRAY},
    **{f"{module}.scalar": _scalar for module in _MULTIARRAY},
    **{f"{module}._frombuffer": _from_buffer for module in _NUMERIC},
    "numpy.dtype": lambda name, *rest: _PickledDtype(name),
}
"""What stands in for NumPy's calls."""


class ReadOtherwise:
    """What a file has that is read as something else than it was saved as: how much of each kind."""

    def __init__(self) -> None:
        self.scalars = self.arrays = self.keys = self.attributes = self.of_dicts = 0
        self.versions: list[str] = []
        """Modules whose version of their state is left out."""
        self.classes: Counter[str] = Counter()
        """Subclasses of tensors whose elements are read, and how many."""
        self.values: Counter[str] = Counter()
        """What is read as something plainer, as a phrase, and how many."""

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Return NumPy's calls, which are counted."""
        own: dict[str, Callable[..., Any]] = {f"{module}.scalar": self._scalar for module in _MULTIARRAY}
        own |= {f"{module}._reconstruct": self._array for module in _MULTIARRAY}
        return {**NUMPY_CALLS, **own, **{f"{module}._frombuffer": self._from_buffer for module in _NUMERIC}}

    def count_keys(self, count: int) -> None:
        """Count keys of dicts that are read as text."""
        self.keys += count

    def notes(self) -> tuple[str, ...]:
        """Return what is read as something else, as sentences."""
        found, said = [], []
        if self.scalars:
            found.append(f"{self.scalars:,} scalars of NumPy are read as numbers of Python")
        if self.arrays:
            found.append(f"{self.arrays:,} arrays of NumPy are read as tensors")
        if found:
            said.append(f"{' and '.join(found)}: torch.load with weights_only=True takes no others")
        said += [f"{count:,} {kind}" for kind, count in self.values.items() if count]
        if self.keys:
            said.append(f"{self.keys:,} keys that are neither text nor integers are read as text, such as '(0, 1)'")
        if self.attributes:
            said.append(f"attributes of {self.attributes:,} tensors are left out: their elements alone are read")
        if self.of_dicts:
            said.append(f"attributes of {self.of_dicts:,} dicts are left out: their items alone are read")
        if self.versions:
            first = self.versions[0] or "the module itself"
            said.append(
                f"versions of the state of {len(self.versions):,} modules (`_metadata` of a state dict) are left "
                f"out, the first that of {first:.80}: load_state_dict takes what has none for the oldest"
            )
        for name, count in self.classes.items():
            said.append(
                f"{count:,} tensors of {name:.80} are read as plain ones: what its code makes of them is unknown"
            )
        return tuple(said)

    def _scalar(self, *args: Any) -> Any:
        found = _scalar(*args)
        self.scalars += not isinstance(found, Opaque)
        return found

    def _array(self, *args: Any) -> Any:
        self.arrays += 1
        return _PickledArray()

    def _from_buffer(self, *args: Any) -> Any:
        self.arrays += 1
        return _from_buffer(*args)
