"""`torch.save` files: a zip archive of one pickle and of the bytes of each storage, read without PyTorch.

Source: `torch/serialization.py`, `torch/_utils.py` and `caffe2/serialize/inline_container.cc`, PyTorch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError
from parity.formats.array import MOST_AXES, Array, MappedArray, dtype_named
from parity.formats.mapping import map_file
from parity.formats.numpy_pickled import NUMPY_CALLS, ReadOtherwise
from parity.formats.state_dicts import StateDict
from parity.formats.symbolic import PLAIN_CALLS, Function, Global, Outside, read_pickle
from parity.formats.tree import Opaque, Source, Tree, leaf_name, leaves
from parity.formats.zips import ZipRecords

__all__ = [
    "QUANTIZED",
    "Storage",
    "Views",
    "open_torch_file",
    "open_zip",
    "parts_of_processes",
    "read_torch_bytes",
    "storage_dtype",
    "tensor_calls",
]

STORAGES = {
    **{
        "DoubleStorage": "float64",
        "FloatStorage": "float32",
        "HalfStorage": "float16",
        "BFloat16Storage": "bfloat16",
    },
    **{"LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8"},
    **{"ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8"},
    **{"ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128"},
    **{"QInt8Storage": "qint8", "QUInt8Storage": "quint8", "QInt32Storage": "qint32"},
    **{"QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4"},
}
"""Classes of storages that PyTorch pickles to the dtype of their elements."""

QUANTIZED = {"qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1}
"""Dtypes of quantized tensors, which stay objects, and the bytes that an element of a storage takes."""

VIEWS_OF_A_BYTE = 64
"""How often the views of a file may show its bytes, such as the layers of a model that share all parameters."""

EXPANDED_BYTES = 256 << 20
"""Bytes that views may be larger by, such as masks that are expanded."""

LONGEST_CLASS = 80
"""Characters of the name of a storage's class that are looked at; a longer one is not the name of a class."""

_LONE = re.compile(r"torch\.(?:storage\.)?(\w+)")


class Views:
    """The arrays of one file that were asked for, and how many bytes they are together.

    A view may show one element a billion times: 64 bytes, of strides 0, are an array of any size.
    """

    def __init__(self, nbytes: int) -> None:
        self.most = nbytes * VIEWS_OF_A_BYTE + EXPANDED_BYTES
        self.nbytes = 0

    def add(self, array: MappedArray) -> MappedArray:
        """Count an array.

        Raises:
            CheckpointError: Together they are more than a file of this size can hold.
        """
        self.nbytes += array.nbytes
        if self.nbytes > self.most:
            raise CheckpointError(
                f"{array} and those before it are views of {self.nbytes:,} bytes, more than the file can hold: one "
                "element stands for many"
            )
        return array


class Storage(Outside):
    """A storage that tensors are views of."""

    __slots__ = ("dtype", "key", "kind", "mapped", "views")

    def __init__(self, key: tuple[str, str], dtype: str, mapped: NDArray[np.uint8], views: Views, kind: str) -> None:
        """Take the file and its key in it, which are counted anew in each file, its type, its bytes and its class."""
        self.key, self.dtype, self.mapped, self.views, self.kind = key, dtype, mapped, views, kind

    def content(self) -> MappedArray:
        """Return its bytes, which count as a view each time."""
        return self.views.add(MappedArray(self.mapped, np.dtype(np.uint8), [self.mapped.size]))


def open_zip(path: Path) -> ZipRecords:
    """Return the records of an archive that `torch.save` wrote.

    Raises:
        CheckpointError: It cannot be read, or is none: truncated, compressed, or with a record twice.
    """
    return ZipRecords(path, map_file(path))


def open_torch_file(path: Path) -> Source:
    """Open a file that `torch.save` wrote.

    Raises:
        CheckpointError: It is none: a truncated archive, TorchScript, or written on a big-endian machine.
    """
    records = open_zip(path)
    otherwise = ReadOtherwise()
    tree = _read(records, str(path), otherwise)
    version = records.text("version")
    checked = records.has_checksums
    return Source(
        path=path,
        format="torch.save",
        tree=tree,
        detail=f"archive version {version}" if version else "",
        divided=parts_of_processes(tree),
        notes=otherwise.notes(),
        verify=records.damaged if checked else None,
        checked="the CRC-32 of every record" if checked else "",
        unproven=UNPROVEN if checked else "whether any byte is what was saved: it was written without checksums",
    )


OF_PROCESSES = (
    "torch.distributed.tensor.DTensor",
    "torch.distributed._tensor.api.DTensor",
    "torch.distributed._shard.sharded_tensor.api.ShardedTensor",
)
"""Classes of tensors that several processes hold together."""


def parts_of_processes(tree: Tree) -> str:
    """Return why a file that one of several processes saved has no whole tensors, as a phrase, or nothing.

    Beside such a tensor its plain ones may be parts too, as those of FSDP1's local state dict are.

    Args:
        tree: What the file holds.
    """
    found = ((keys, leaf.name) for keys, leaf in leaves(tree) if isinstance(leaf, Opaque))
    keys, name = next(((keys, name) for keys, name in found if name in OF_PROCESSES), ((), ""))
    if not name:
        return ""
    return (
        f"{leaf_name(keys)} is a {name.rpartition('.')[2]}, of which the file of a process has that process's part; "
        "in training, save all together with torch.distributed.checkpoint (DCP), which is converted, or the whole in "
        "one process: get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, "
        "cpu_offload=True))"
    )


UNPROVEN = "whether the directory of the archive and its names are those that were saved: no checksum covers them"


def read_torch_bytes(mapped: NDArray[np.uint8], where: str) -> Any:
    """Return the tree of a `torch.save` archive that lies within other bytes, such as an item of a DCP file.

    Args:
        mapped: The bytes of the archive: uint8, shape [bytes].
        where: Where it lies, for messages.

    Raises:
        CheckpointError: It is no archive of `torch.save`, is truncated, was written on a big-endian machine, or has a
            pickle that cannot be read.
    """
    return _read(ZipRecords(Path(where), mapped), where, ReadOtherwise())


def _read(records: ZipRecords, where: str, otherwise: ReadOtherwise) -> Any:
    if "data.pkl" not in records.names:
        shown = ", ".join(sorted(records.names)[:4])
        raise CheckpointError(f"{where} is a zip archive, but not of torch.save: no data.pkl among {shown}")
    if records.text("byteorder") not in ("", "little"):
        raise CheckpointError(f"{where} was written on a big-endian machine; load and save it there with PyTorch")
    views = Views(sum(records.size(name) for name in records.names))
    return read_pickle(
        records.read("data.pkl"),
        f"{where}: data.pkl",
        tensor_calls(otherwise),
        lambda found: _storage(found, records, views),
        tensors=len(records.names),
        changed_keys=otherwise.count_keys,
    )


def _storage(found: Any, records: ZipRecords, views: Views) -> Storage:
    kind, cls, key, _, _, *_ = found
    dtype = storage_dtype(kind, cls, str(records.path))
    return Storage((str(records.path), str(key)), dtype, records.mapped(f"data/{key}"), views, cls.name)


def storage_dtype(kind: Any, cls: Any, where: str) -> str:
    """Return the dtype of a storage, by what its persistent id says.

    Args:
        kind: The first word, `storage`.
        cls: The class, as a name.
        where: The file, for messages.

    Raises:
        CheckpointError: It is no storage, or of a class that is unknown.
    """
    dtype = _dtype_of(cls.name[:LONGEST_CLASS]) if isinstance(cls, Global) else None
    if kind != "storage" or dtype is None:
        raise CheckpointError(f"{where}: a storage of the kind {getattr(cls, 'name', cls)!r:.60}, which is unknown")
    return dtype


@lru_cache(256)
def _dtype_of(name: str) -> str | None:
    match = _LONE.fullmatch(name)
    return STORAGES.get(match[1]) if match else None


def _tensor(
    storage: Any,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: str | None = None,
) -> Array | Opaque:
    if not isinstance(storage, Storage):  # such as one that a plain pickle has within itself
        return Opaque("torch.Tensor", [storage, offset, shape, strides])
    name = dtype or storage.dtype
    found = dtype_named(name)
    if found is None:
        return Opaque(f"torch.{name}", [storage, offset, shape, strides])
    if (
        not set(map(type, (offset, *shape, *strides))) <= {int}
        or len(shape) != len(strides)
        or len(shape) > MOST_AXES
    ):
        raise CheckpointError(f"a tensor of the shape {shape!r:.60} with the strides {strides!r:.60} is not possible")
    size = found.itemsize
    array = MappedArray(
        storage.mapped,
        found,
        shape,
        start=offset * size,
        strides=[step * size for step in strides],
        shared=(storage.key, offset, tuple(strides)),
    )
    return storage.views.add(array)


def _rebuild_v3(storage: Any, offset: int, shape: Any, strides: Any, *rest: Any) -> Array | Opaque:
    dtype = rest[2]
    return _tensor(storage, offset, shape, strides, dtype.name.removeprefix("torch."))


def _from_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
    """Return the tensor of a subclass; one without a storage of its own, such as DTensor, stays opaque."""
    if isinstance(function, Global) and function.name in CALLS:
        return CALLS[function.name](*args)
    return Opaque(getattr(cls, "name", "torch.Tensor"), [args, state])


def _rebuild_v2(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Any:
    """Return a tensor; one whose values are another view of what is stored is refused, not read as stored.

    PyTorch keeps conjugation and negation as a bit of the tensor, last of what its pickle has.
    """
    about = rest[2] if len(rest) > 2 and isinstance(rest[2], dict) else {}
    lazy = [name for name in ("conj", "neg") if about.get(name)]
    if lazy:
        name = lazy[0]
        raise CheckpointError(
            f"a tensor has PyTorch's {name} bit: it shows other values than are stored; save tensor.resolve_{name}()"
        )
    return _tensor(storage, offset, shape, strides)


CALLS: Mapping[str, Function] = {
    **PLAIN_CALLS,
    "torch._utils._rebuild_tensor_v2": _rebuild_v2,
    "torch._utils._rebuild_tensor": lambda storage, offset, shape, strides: _tensor(storage, offset, shape, strides),
    "torch._utils._rebuild_tensor_v3": _rebuild_v3,
    "torch._utils._rebuild_parameter": lambda data, *rest: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *rest: data,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Size": tuple,
    "torch.device": lambda *parts: ":".join(map(str, parts)),
    "torch.serialization._get_layout": lambda name: name,
    **NUMPY_CALLS,
}
"""What stands in for the calls of a pickle of PyTorch: tensors, parameters, NumPy's arrays and scalars."""


def tensor_calls(otherwise: ReadOtherwise) -> Mapping[str, Function]:
    """Return what stands in for the calls of one file; what is read otherwise than it was saved is counted.

    Args:
        otherwise: Takes the counts.
    """

    def from_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
        found = _from_type(function, cls, args, state)
        if not isinstance(found, Opaque):  # one that stays an object keeps all it has
            otherwise.attributes += _has_attributes(state)
            if isinstance(cls, Global) and cls.name not in _PLAIN_TENSORS:
                otherwise.classes[cls.name] += 1
        return found

    def parameter(data: Any, grad: Any, hooks: Any, state: Any = None, *rest: Any) -> Any:
        otherwise.attributes += _has_attributes(state)
        otherwise.values[_TRAINED] += 1
        return data

    def tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Any:
        otherwise.values[_TRAINED] += bool(rest) and rest[0] is True
        return _rebuild_v2(storage, offset, shape, strides, *rest)

    def ordered(*pairs: Any) -> StateDict:
        return StateDict(PLAIN_CALLS["collections.OrderedDict"](*pairs), otherwise)

    def counted(name: str, kind: str) -> Function:
        def call(*args: Any) -> Any:
            otherwise.values[kind] += 1
            return CALLS[name](*args)

        return call

    own: dict[str, Function] = {"torch._tensor._rebuild_from_type_v2": from_type}
    own["torch._utils._rebuild_parameter"] = own["torch._utils._rebuild_parameter_with_state"] = parameter
    own["torch._utils._rebuild_tensor_v2"] = tensor
    own["collections.OrderedDict"] = ordered
    own |= {name: counted(name, kind) for name, kind in _PLAINER.items()}
    return {**CALLS, **otherwise.calls(), **own}


def _has_attributes(state: Any) -> bool:
    """Return whether attributes of a tensor are more than those that make it a buffer of a module."""
    parts = state if isinstance(state, tuple) else (state,)
    return any(set(part) - _OF_BUFFERS if isinstance(part, dict) else bool(part) for part in parts)


_TRAINED = "tensors that are parameters or require gradients are read as plain ones"

_PLAIN_TENSORS = {f"torch.{name}" for name in ("Tensor", "_tensor.Tensor", "nn.parameter.Parameter")}
"""Classes of tensors without code of their own."""

_PLAINER = {
    "torch.device": "devices are read as text",
    "torch.serialization._get_layout": "layouts are read as text",
    "torch.Size": "sizes (torch.Size) are read as tuples",
    "pathlib.PosixPath": "paths are read as text",
    "pathlib._local.PosixPath": "paths are read as text",
    "collections.defaultdict": "dicts with a default (defaultdict) are read as plain ones",
    "builtins.bytearray": "byte arrays are read as bytes",
    "__builtin__.bytearray": "byte arrays are read as bytes",
}
"""Calls whose result is plainer than what PyTorch's loader makes of them, and what is said of it."""

_OF_BUFFERS = {"persistent", "_is_buffer"}
