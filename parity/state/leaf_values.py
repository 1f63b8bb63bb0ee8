"""The values of leaves beside their digests: kept by a traced run, so that a difference can be given its size.

A file is named by the digest of what it holds, so a leaf that does not change is written once. A digest says whether
two leaves differ; `measure` says by how much, where the values of both were kept.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity.state.training_state import TrainingState

__all__ = ["VALUES", "LeafSize", "keep_values", "measure_arrays", "measure_kept"]

VALUES = "state-values"
"""Name of the directory of values, beside the file of the digests."""

MOST_BYTES = 16 * 2**20
"""Bytes of the largest leaf whose values are kept: a check of a large model must not fill the disk."""


class LeafSize(NamedTuple):
    """By how much two arrays of one shape differ."""

    elements: int
    differing: int
    """Elements whose bits differ."""
    max_abs: float
    """Largest absolute difference; NaN where it is not defined for an element."""
    max_rel: float
    """Largest difference relative to the expected value; infinite where that is zero."""


def keep_values(state: TrainingState, texts: Mapping[str, str], home: Path) -> None:
    """Write the arrays of a state that are not there yet; those above `MOST_BYTES` are left out.

    What cannot be written is left out too: the values explain a difference, and must not end the run that is traced.

    Args:
        state: The state.
        texts: Leaf path to the text of its digest.
        home: The directory, which is made where it is missing.
    """
    with contextlib.suppress(OSError):
        home.mkdir(exist_ok=True)
        for leaf, value in state.arrays.items():
            path = _path(home, texts[leaf])
            if value.nbytes <= MOST_BYTES and not path.exists():
                native = value if value.dtype.kind != "V" else value.astype(np.float32)  # bfloat16: exact there
                np.save(path, native, allow_pickle=False)


def measure_kept(expected: tuple[Path, str], found: tuple[Path, str]) -> LeafSize | None:
    """Return by how much two leaves differ.

    Args:
        expected: Directory of the values of the first run, and the text of the leaf's digest.
        found: The same of the second.

    Returns:
        The size of the difference; None where the values of one were not kept, or the shapes differ.
    """
    first, second = (_load(_path(home, text)) for home, text in (expected, found))
    if first is None or second is None or (first.shape, first.dtype) != (second.shape, second.dtype):
        return None
    return measure_arrays(first, second)


def measure_arrays(expected: NDArray[np.generic], found: NDArray[np.generic]) -> LeafSize:
    """Return by how much two arrays of one shape and dtype differ.

    Args:
        expected: An array; relative differences are taken to its elements.
        found: The array that is compared with it.

    Numerics:
        Values are compared in float64; elements of equal bits count as equal, NaN included.

    Example:
        >>> measure_arrays(np.array([1.0, 2.0, 0.0]), np.array([1.0, 2.5, 0.0]))
        LeafSize(elements=3, differing=1, max_abs=0.5, max_rel=0.25)
    """
    bits = [np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, x.itemsize) for x in (expected, found)]
    differing = (bits[0] != bits[1]).any(axis=1) if expected.size else np.zeros(0, bool)
    if not differing.any():
        return LeafSize(expected.size, 0, 0.0, 0.0)
    a, b = (x.reshape(-1)[differing].astype(np.float64) for x in (expected, found))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        gap = np.where(a == b, 0.0, np.abs(a - b))  # infinity less itself, and the two zeros
        relative = np.where(gap == 0, 0.0, gap / np.abs(a))
    return LeafSize(expected.size, int(differing.sum()), _largest(gap), _largest(relative))


def _largest(values: NDArray[np.float64]) -> float:
    return math.nan if np.isnan(values).any() else float(values.max(initial=0.0))


def _path(home: Path, text: str) -> Path:
    return home / f"{xxhash.xxh3_128_hexdigest(text.encode())}.npy"


def _load(path: Path) -> NDArray[np.generic] | None:
    """Return the values in a file; None where there is none, or it was cut short by a kill."""
    try:
        loaded: NDArray[np.generic] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return loaded
