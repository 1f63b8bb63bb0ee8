"""An OCDBT store that TensorStore writes: many small values in few files, and one synchronization for all of them.

A value goes into a transaction; a transaction is a data file and the nodes that name what lies in it. So a tree of
many small arrays is a handful of files, as Orbax has it, and not two for each array.

Source: TensorStore 0.1.86, the key-value store driver `ocdbt`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import tensorstore as ts

__all__ = ["write_values"]

COMMIT_BYTES = 64 << 20
"""Bytes after which a transaction is written; they are in memory until then, twice while the next one is filled."""

CONFIG = {"compression": None, "max_inline_value_bytes": 1024, "max_decoded_node_bytes": 1 << 20}
"""Nodes are kept small: each transaction writes those anew in which its keys are."""


def write_values(store: Path, values: Iterable[tuple[str, bytes]]) -> None:
    """Write keys and values as a store; it is on its way to the disk, and not synchronized.

    Args:
        store: A directory that exists and holds no store.
        values: Keys and values, best in the order of the keys; of any text, as a key is no path here.

    Raises:
        OSError: The disk is full, or failed.
    """
    base = {"driver": "file", "path": f"{store.resolve()}/", "file_io_sync": False}
    try:
        kvstore = ts.KvStore.open({"driver": "ocdbt", "base": base, "config": CONFIG}).result()
        transaction, held, committing = ts.Transaction(atomic=True), 0, None
        for key, value in values:
            kvstore.with_transaction(transaction).write(key, value).result()
            held += len(key) + len(value)
            if held >= COMMIT_BYTES:
                if committing is not None:
                    committing.result()
                committing = transaction.commit_async()
                transaction, held = ts.Transaction(atomic=True), 0
        if committing is not None:
            committing.result()
        transaction.commit_async().result()
    except OSError:
        raise
    except Exception as error:  # TensorStore has no common error for a disk that fails
        code = re.search(r"os_error_code='(\d+)'|OS error (\d+)", str(error))
        if code is None:
            raise
        number = int(code[1] or code[2])
        raise OSError(number, os.strerror(number), str(store)) from error
