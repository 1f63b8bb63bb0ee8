"""Arrays of an Orbax item, read by boxes with TensorStore; no framework is needed.

Source: the layouts of Orbax 0.12: zarr 2 or 3, each array a store of its own or all of them in one OCDBT store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import CheckpointError, explain
from parity.formats.array import BLOCK_BYTES, Array, Box, dtype_named, extents
from parity.formats.ocdbt import files_of, stored_values
from parity.formats.orbax_chunks import Grid, check_chunks, key_below
from parity.formats.raw_chunks import RawChunks

__all__ = ["ItemArrays"]

CACHE_BYTES = 64 << 20
MOST_METADATA = 1 << 20
"""Longest description of one array in bytes."""

ZARR2 = {
    **{"|i1": "int8", "|u1": "uint8", "|b1": "bool", "<i1": "int8", "<u1": "uint8", "<b1": "bool"},
    **{"<f8": "float64", "<f4": "float32", "<f2": "float16", "<c8": "complex64", "<c16": "complex128"},
    **{"<i8": "int64", "<i4": "int32", "<i2": "int16", "<u8": "uint64", "<u4": "uint32", "<u2": "uint16"},
}
"""dtypes of zarr 2 to NumPy's; bfloat16 and the float8 types have their own names there, as all have in zarr 3."""


class ItemArrays:
    """The arrays of one item, by name, and the slab that was read last."""

    def __init__(self, root: Path, *, ocdbt: bool, zarr3: bool, complete: bool = False) -> None:
        """Take where an item lies.

        Args:
            root: Its directory.
            ocdbt: Whether one OCDBT store holds all arrays.
            zarr3: Whether they are of zarr 3.
            complete: Whether every chunk was written; else one that is not there is full of zeros.

        Raises:
            CheckpointError: TensorStore is not installed, a link lies in the directory, or there is no store.
        """
        try:
            import tensorstore
        except ImportError as error:
            raise CheckpointError(f"{root} is of Orbax: pip install tensorstore reads it") from error
        self._ts, self.root, self._driver = tensorstore, root, "zarr3" if zarr3 else "zarr"
        self._files = files_of(root)
        self.holes = 0
        """Chunks that are not there and read as zeros, where those of zeros were not written."""
        self._ocdbt, self._complete = ocdbt, complete
        if ocdbt and not (root / "manifest.ocdbt").is_file():
            raise CheckpointError(f"{root} has no manifest.ocdbt, so its arrays cannot be found")
        self._context = tensorstore.Context(
            {"cache_pool": {"total_bytes_limit": CACHE_BYTES}, "file_io_concurrency": {"limit": 4}}
        )
        self._parsed: dict[bytes, Any] = {}
        self._slab: tuple[str, Box, NDArray[Any]] | None = None
        self._inline: dict[str, bytes] = {}
        """Values that lie in the nodes of the store, which are read to find the arrays: asking for each of 20,000
        takes ten times as long."""

    def open_all(self, names: Iterable[str]) -> dict[str, Array]:
        """Return arrays by name; only their descriptions are read.

        Raises:
            CheckpointError: One is missing, or its description is none.
        """
        suffix = "zarr.json" if self._driver == "zarr3" else ".zarray"
        wanted = list(names)
        try:
            self._store = store = self._ts.KvStore.open(self._kvstore(""), context=self._context).result()
            stored, texts, held = self._files, {}, 0
            if self._ocdbt:
                stored = {}
                for one in stored_values(self._ts, self.root, self._files):
                    stored[one.key] = one.size
                    if isinstance(one.value, bytes) and one.key.endswith(suffix):
                        texts[one.key] = one.value  # it lies in a node, which was read
                    elif isinstance(one.value, bytes) and held + one.size <= CACHE_BYTES:
                        self._inline[one.key], held = one.value, held + one.size
            self._sizes = stored
            reads = {key: store.read(key) for name in wanted if (key := key_below(name, suffix)) not in texts}
            texts.update((key, made.value) for key, read in reads.items() if (made := read.result()).state == "value")
        except CheckpointError:
            raise
        except Exception as error:  # TensorStore raises ValueError, KeyError and OSError alike for a damaged store
            raise CheckpointError(f"{self.root} cannot be read: {str(error)[:300]}") from error
        found: dict[str, Array] = {}
        for name in wanted:
            text = texts.get(key_below(name, suffix))
            if text is None or len(text) > MOST_METADATA:
                raise CheckpointError(f"{self.root}: the array {name} is named by _METADATA and is not there")
            found[name] = self._describe(name, text, stored)
        return found

    def _kvstore(self, name: str) -> dict[str, Any]:
        base = {"driver": "file", "path": f"{self.root.resolve()}/"}
        if self._ocdbt:
            return {"driver": "ocdbt", "base": base, "path": f"{name}/" if name else ""}
        return {**base, "path": f"{base['path']}{name}/" if name else base["path"]}

    def _describe(self, name: str, text: bytes, stored: Mapping[str, int]) -> Array:
        """Return an array by the text of its description, its chunks looked up."""
        if text not in self._parsed:  # many arrays are alike, and reading JSON is most of the work
            self._parsed[text] = self._parse(name, text)
        value, shape, chunk, dtype, grid = self._parsed[text]
        self.holes += check_chunks(str(self.root), name, grid, stored, complete=self._complete)
        plain = self._driver == "zarr" and not self._ocdbt and self._complete and grid.plain
        if plain and (value.get("order"), value.get("dimension_separator", ".")) == ("C", "."):
            return RawChunks(self.root / name, shape, chunk, dtype)
        array = _OrbaxArray(self, name, tuple(shape), tuple(chunk), dtype)
        if self._driver == "zarr" and grid.plain and value.get("order") == "C" and shape == chunk:
            array.only = key_below(name, grid.keys[0]) if grid.keys else ""
        return array

    def _parse(self, name: str, text: bytes) -> tuple[Any, list[int], list[int], np.dtype[Any], Grid]:
        """Return a description, and what it says: shape, chunk, dtype and grid."""
        try:
            value = json.loads(text)
            shape, chunk, kind, grid = (_zarr3 if self._driver == "zarr3" else _zarr2)(value)
            dtype = dtype_named(kind) if isinstance(kind, str) else None
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"{self.root}: {name} is described wrongly ({explain(error)})") from error
        if dtype is None:
            raise CheckpointError(f"{self.root}: {name} has the dtype {kind!r}, which is unknown")
        self._require_sound(name, shape, chunk, grid.chunk)
        return value, shape, chunk, dtype, replace(grid, itemsize=dtype.itemsize)

    def _require_sound(self, name: str, shape: list[int], *chunks: Sequence[int]) -> None:
        """Refuse what is no shape, and chunks that are larger than their array: one is in memory as a whole."""
        for chunk in chunks:
            fits = len(chunk) == len(shape) and min([*chunk, 1]) >= 1
            fits = fits and all(c <= max(n, 1) for n, c in zip(shape, chunk, strict=True))
            if not fits or min([*shape, 0]) < 0 or math.prod(shape) >= 1 << 48:
                raise CheckpointError(
                    f"{self.root}: {name} has the shape {shape} in chunks of {list(chunk)}, which is not possible"
                )

    def slab(self, array: _OrbaxArray, box: Box) -> NDArray[Any]:
        """Return a box; of large chunks, all that the box touches are read at once and kept for the next one."""
        if array.chunk_bytes <= BLOCK_BYTES:
            return self._read(array, box)
        around = tuple(
            (low // size * size, min(-(-high // size) * size, n)) if high > low else (low, high)
            for (low, high), size, n in zip(box, array.chunk, array.shape, strict=True)
        )
        if math.prod(extents(around)) * array.dtype.itemsize > array.chunk_bytes:
            return self._read(array, box)  # several large chunks: not all of them at once
        if self._slab is None or self._slab[:2] != (array.name, around):
            self._slab = None
            self._slab = (array.name, around, self._read(array, around))
        inner = tuple(slice(low - a, high - a) for (low, high), (a, _) in zip(box, around, strict=True))
        return self._slab[2][inner]

    def _read(self, array: _OrbaxArray, box: Box) -> NDArray[Any]:
        if array.only and array.only in self._sizes and extents(box) == array.shape:
            return self._value(array)
        spec = {
            "driver": self._driver,
            "kvstore": self._kvstore(array.name),
            "recheck_cached_data": "open",
            "fill_missing_data_reads": not self._complete,
        }
        try:
            if array.opened is None:
                array.opened = self._ts.open(spec, open=True, read=True, context=self._context).result()
            found = array.opened[tuple(slice(*pair) for pair in box)].read(order="C").result()
        except Exception as error:
            raise CheckpointError(f"{self.root}: {array.name} cannot be read: {str(error)[:300]}") from error
        if found.shape != extents(box) or found.dtype != array.dtype:
            raise CheckpointError(
                f"{self.root}: {array.name} is {found.dtype} of {found.shape}, unlike its description"
            )
        return np.asarray(found)

    def _value(self, array: _OrbaxArray) -> NDArray[Any]:
        """Return an array that is one value of the store: opening it would take ten times as long."""
        data = self._inline.get(array.only)
        try:
            data = self._store.read(array.only).result().value if data is None else data
        except Exception as error:
            raise CheckpointError(f"{self.root}: {array.name} cannot be read: {str(error)[:300]}") from error
        if len(data) != array.nbytes:
            raise CheckpointError(f"{self.root}: {array.name} has {len(data):,} bytes, expected {array.nbytes:,}")
        return np.frombuffer(data, array.dtype).reshape(array.shape)


class _OrbaxArray(Array):
    """One array of an item."""

    only = ""
    """Key of its only chunk, if that has the bytes of its elements and no others."""

    def __init__(
        self, item: ItemArrays, name: str, shape: tuple[int, ...], chunk: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.item, self.name, self.shape, self.chunk, self.dtype = item, name, shape, chunk, dtype
        self.chunk_bytes = math.prod(min(n, c) for n, c in zip(shape, chunk, strict=True)) * dtype.itemsize
        self.opened: Any = None

    def read(self, box: Box) -> NDArray[Any]:
        """Return a box of it, decoded."""
        return self.item.slab(self, box) if math.prod(extents(box)) else np.empty(extents(box), self.dtype)

    def blocks(self, most: int = BLOCK_BYTES) -> Iterator[NDArray[Any]]:
        """Yield all of it in C order; the store is closed in the end."""
        yield from super().blocks(most)
        self.opened = None


_Described = tuple[list[int], list[int], Any, Grid]
"""Shape, shape of what is decoded at once, name of the dtype, and the grid of what has keys."""


def _zarr2(value: Mapping[str, Any]) -> _Described:
    """Take the description of an array of zarr 2 apart."""
    shape, chunk = [int(n) for n in value["shape"]], [int(n) for n in value["chunks"]]
    separator = _separator(value.get("dimension_separator", "."))
    plain = not value.get("compressor") and not value.get("filters")
    grid = Grid(shape, chunk, lambda at: separator.join(map(str, at)) or "0", plain=plain)
    return shape, chunk, ZARR2.get(value["dtype"], value["dtype"]), grid


def _zarr3(value: Mapping[str, Any]) -> _Described:
    """Take the description of an array of zarr 3 apart; of a shard, its inner chunks are decoded alone."""
    shape = [int(n) for n in value["shape"]]
    outer = [int(n) for n in value["chunk_grid"]["configuration"]["chunk_shape"]]
    codecs = value["codecs"]
    inner = [c["configuration"]["chunk_shape"] for c in codecs if c["name"] == "sharding_indexed"]
    encoding = value.get("chunk_key_encoding", {})
    default = encoding.get("name", "default") == "default"
    separator = _separator(encoding.get("configuration", {}).get("separator", "/" if default else "."))

    def key(at: Sequence[int]) -> str:
        return separator.join(["c", *map(str, at)]) if default else separator.join(map(str, at)) or "0"

    grid = Grid(shape, outer, key, plain=[c["name"] for c in codecs] == ["bytes"])
    return shape, [int(n) for n in (inner[0] if inner else outer)], value["data_type"], grid


def _separator(value: Any) -> str:
    if value not in (".", "/"):
        raise ValueError(f"{value!r:.40} separates no places")
    return str(value)
