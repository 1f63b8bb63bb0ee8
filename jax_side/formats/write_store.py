"""An OCDBT store that TensorStore writes: any number of arrays in few files, without a copy of the large ones.

What is small goes into a transaction by its key: to open an array of zarr takes TensorStore a third of a millisecond.
Chunks of large arrays go into the same transaction through zarr's driver, which writes them from where they lie; a
value that is written by its key is copied twice. A transaction is a data file and the nodes that name what lies in
it, so a tree of many small arrays is a handful of files. The files are synchronized by whoever seals them.

Source: TensorStore 0.1.86, the drivers `ocdbt` and `zarr`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorstore as ts

from jax_side.formats.write_chunks import chunks
from jax_side.formats.zarr import describe_array
from parity.formats import Array, InMemory

__all__ = ["StoredArray", "write_store"]

COMMIT_BYTES = 64 << 20
"""Bytes after which a transaction is written; what was read for it is in memory until then, and twice while the next
one is filled."""

LARGE = 64 << 10
"""Bytes of a chunk from which on the copies of a value cost more than an array of zarr that is opened for it."""

INLINE = 1024
"""Bytes of the largest value that lies in the node that names it, as Orbax has it."""

CONFIG = {"compression": None, "max_decoded_node_bytes": 8 << 20}
"""Each transaction writes the nodes anew in which its keys are, so they are no larger than TensorStore has them by
default."""


class StoredArray(NamedTuple):
    """An array, and how it is cut."""

    name: str
    values: Array
    chunk: tuple[int, ...]
    """Shape of its chunks, each a run of consecutive elements."""


def write_store(store: Path, arrays: Iterable[StoredArray], inline: int = INLINE) -> None:
    """Write arrays as a store; it is on its way to the disk, and not synchronized.

    Args:
        store: A directory that exists and holds no store.
        arrays: What is written, best in the order of the names; any text is one, as a key is no path here. Nobody may
            change the values before this returns.
        inline: Bytes of the largest value that lies in a node. With 0, a leaf that is damaged is named alone, and not
            together with all that have the node in common.

    Raises:
        OSError: The disk is full, or failed.
    """
    try:
        _write(store, arrays, {**CONFIG, "max_inline_value_bytes": inline})
    except OSError:
        raise
    except Exception as error:  # TensorStore has no common error for a disk that fails
        code = re.search(r"os_error_code='(\d+)'|OS error (\d+)", str(error))
        if code is None:
            raise
        number = int(code[1] or code[2])
        file = re.search(re.escape(str(store.resolve())) + r"[^\s\"'\\]*", str(error))
        raise OSError(number, os.strerror(number), file[0] if file else str(store)) from error


def _write(store: Path, arrays: Iterable[StoredArray], config: Mapping[str, Any]) -> None:
    base = {"driver": "file", "path": f"{store.resolve()}/", "file_io_sync": False}
    spec = {"driver": "ocdbt", "base": base, "config": config}
    # One context: what shares a transaction must share the open store. No cache: it would keep chunks.
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    kvstore = ts.KvStore.open(spec, context=context).result()
    transaction, held, committing = ts.Transaction(atomic=True), 0, None
    for name, values, chunk in arrays:
        text = describe_array(values.shape, chunk, values.dtype.name)
        size = math.prod(chunk) * values.dtype.itemsize
        array = None
        if size >= LARGE:
            zarr = {"driver": "zarr", "kvstore": {**spec, "path": f"{name}/"}, "metadata": json.loads(text)}
            zarr["store_data_equal_to_fill_value"] = True  # or a chunk of zeros would be left out
            array = ts.open(zarr, assume_metadata=True, write=True, context=context).result()
        # nobody waits for a value that goes into a transaction: what fails, fails in the commit
        kvstore.with_transaction(transaction).write(f"{name}/.zarray", text)
        for key, box, data in chunks(values, chunk):
            if array is None:
                value = data.tobytes().ljust(size, b"\0")
                kvstore.with_transaction(transaction).write(f"{name}/{key}", value)
            else:
                part = array.with_transaction(transaction)[tuple(slice(*pair) for pair in box)]
                part.write(data, can_reference_source_data_indefinitely=True).copy.result()
            by_reference = array is not None and isinstance(values, InMemory)
            held += 0 if by_reference else size
            if held >= COMMIT_BYTES:
                if committing is not None:
                    committing.result()
                committing = transaction.commit_async()
                transaction, held = ts.Transaction(atomic=True), 0
    if committing is not None:
        committing.result()
    transaction.commit_async().result()
