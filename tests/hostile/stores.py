"""Hostile OCDBT stores and zarr arrays of the JAX side: wrong types and shapes, bombs, pointers that lead outside.

Every spoiled store is sealed again. TensorStore itself writes the manifests (`undump_manifest`) and the arrays.
"""

import bz2
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorstore as ts

from tests.hostile.entry import Entry, Spoil
from tests.hostile.runs import Sandbox

BIAS, KERNEL = "layers.0.bias.value", "layers.0.kernel.value"
ITEM = "params"


def _open(store: Path) -> Any:
    return ts.KvStore.open({"driver": "ocdbt", "base": f"file://{store}/"}).result()


def _base(store: Path) -> Any:
    return ts.KvStore.open(f"file://{store}/").result()


def put(values: dict[str, bytes]) -> Spoil:
    """Return a spoiler that writes keys of the store of the parameters."""

    def spoil(box: Sandbox) -> None:
        store = _open(box.newest / ITEM)
        for key, value in values.items():
            store.write(key, value).result()

    return spoil


def _removed(first: str, last: str) -> Spoil:
    def spoil(box: Sandbox) -> None:
        _open(box.newest / ITEM).delete_range(ts.KvStore.KeyRange(first.encode(), last.encode())).result()

    return spoil


def _zarr(array: str = BIAS, **changes: Any) -> Spoil:
    """Return a spoiler that changes what the metadata of an array says."""
    shape = [4] if array == BIAS else [64, 4]
    own = {"chunks": shape, "compressor": None, "dimension_separator": ".", "dtype": "<f4", "fill_value": None}
    own |= {"filters": None, "order": "C", "shape": shape, "zarr_format": 2}
    return put({f"{array}/.zarray": json.dumps(own | changes).encode()})


def _bomb(name: str, pack: Callable[[bytes], bytes]) -> Spoil:
    """Return a spoiler that lets a chunk of 16 bytes unpack to 512 MiB."""
    described = _zarr(compressor={"id": name, "level": 1})

    def spoil(box: Sandbox) -> None:
        described(box)
        put({f"{BIAS}/0": pack(bytes(1 << 29))})(box)

    return spoil


def _manifest(change: Callable[[dict[str, Any]], None], item: str = ITEM) -> Spoil:
    """Return a spoiler that changes the manifest and lets TensorStore write it."""

    def spoil(box: Sandbox) -> None:
        store = box.newest / item
        value = ts.ocdbt.dump(_base(store)).result()
        change(value)
        (store / "manifest.ocdbt").write_bytes(ts.ocdbt.undump_manifest(value))

    return spoil


def _root(change: Callable[[str, str, str], str]) -> Spoil:
    """Return a spoiler that points the newest version elsewhere: file, offset, length to a location."""

    def edit(value: dict[str, Any]) -> None:
        root = value["versions"][-1]["root"]
        root["location"] = change(*root["location"].split(":")[2:])

    return _manifest(edit)


def _without_root(manifest: dict[str, Any]) -> None:
    del manifest["versions"][-1]["root"]["location"]


def _older_tree(box: Sandbox) -> None:
    """Let the store of this step hold the data of the step before, each whole in itself."""
    shutil.rmtree(box.newest / ITEM)
    shutil.copytree(box.older / ITEM, box.newest / ITEM)


def _swapped(box: Sandbox) -> None:
    """Exchange the stores of two items."""
    (box.newest / ITEM).rename(box.newest / "x")
    (box.newest / "optimizer").rename(box.newest / ITEM)
    (box.newest / "x").rename(box.newest / "optimizer")


def _without(name: str) -> Spoil:
    def spoil(box: Sandbox) -> None:
        path = box.newest / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def _data(change: Callable[[bytes], bytes], pattern: str = "params/d/*") -> Spoil:
    """Return a spoiler that changes the files of a pattern."""

    def spoil(box: Sandbox) -> None:
        paths = list(box.newest.glob(pattern))
        assert paths
        for path in paths:
            path.write_bytes(change(path.read_bytes()))

    return spoil


def _scaled(value: bytes) -> Spoil:
    def spoil(box: Sandbox) -> None:
        _open(box.newest / "scaler").write("scale/0", value).result()

    return spoil


UP = "../../../../outside/"
NAMES = "params"

REFUSED: dict[str, tuple[str, Spoil]] = {
    "shape-absurd": (BIAS, _zarr(shape=[1 << 50])),
    "shape-negative": (BIAS, _zarr(shape=[-4])),
    "shape-of-another-rank": (BIAS, _zarr(shape=[4, 1], chunks=[4, 1])),
    "shape-longer": (BIAS, _zarr(shape=[8])),
    "shape-empty": (BIAS, _zarr(shape=[0])),
    "shape-a-text": (BIAS, _zarr(shape="4")),
    "chunks-absurd": (BIAS, _zarr(chunks=[1 << 50])),
    "chunks-of-a-gigabyte": (BIAS, _zarr(chunks=[1 << 28])),
    "chunks-zero": (BIAS, _zarr(chunks=[0])),
    "chunks-of-one": (BIAS, _zarr(chunks=[1])),
    "type-int32": (BIAS, _zarr(dtype="<i4")),
    "type-float64": (BIAS, _zarr(dtype="<f8")),
    "type-big-endian": (BIAS, _zarr(dtype=">f4")),
    "type-object": (BIAS, _zarr(dtype="|O")),
    "type-structured": (BIAS, _zarr(dtype=[["a", "<f4"]])),
    "order-of-fortran": (KERNEL, _zarr(KERNEL, order="F")),
    "fill-value": (BIAS, _zarr(fill_value="x")),
    "filters": (BIAS, _zarr(filters=[{"id": "delta"}])),
    "format-3": (BIAS, _zarr(zarr_format=3)),
    "separator": (KERNEL, _zarr(KERNEL, dimension_separator="/")),
    "compressor-unknown": (BIAS, _zarr(compressor={"id": "pickle"})),
    "compressor-of-stored-bytes": (BIAS, _zarr(compressor={"id": "zlib", "level": 1})),
    "bomb-of-zlib": (BIAS, _bomb("zlib", zlib.compress)),
    "bomb-of-bz2": (BIAS, _bomb("bz2", bz2.compress)),
    "metadata-empty": (BIAS, put({f"{BIAS}/.zarray": b""})),
    "metadata-a-list": (BIAS, put({f"{BIAS}/.zarray": b"[]"})),
    "metadata-deep": (BIAS, put({f"{BIAS}/.zarray": b"[" * 100_000})),
    "metadata-not-utf8": (f"{BIAS}|params is no readable", put({f"{BIAS}/.zarray": b"\xff\xfe"})),
    "chunk-too-short": (BIAS, put({f"{BIAS}/0": b"1234"})),
    "chunk-too-long": (BIAS, put({f"{BIAS}/0": bytes(400)})),
    "chunk-empty": (BIAS, put({f"{BIAS}/0": b""})),
    "chunk-of-other-values": ("layers.0.bias", put({f"{BIAS}/0": bytes(16)})),
    "chunk-missing": (BIAS, _removed(f"{BIAS}/0", f"{BIAS}/1")),
    "array-missing": (BIAS, _removed(f"{BIAS}/", f"{BIAS}0")),
    "everything-missing": (NAMES, _removed("", "z")),
    "root-outside": (NAMES, _root(lambda file, start, size: f"btreenode::{UP}{file}:{start}:{size}")),
    "root-outside-by-its-folder": (NAMES, _root(lambda file, start, size: f"btreenode:{UP}:{file}:{start}:{size}")),
    "root-outside-escaped": (
        NAMES,
        _root(lambda file, start, size: f"btreenode::{UP.replace('/', '%2F')}{file}:{start}:{size}"),
    ),
    "root-outside-from-within": (
        NAMES,
        _root(lambda file, start, size: f"btreenode::d/../{UP}{file}:{start}:{size}"),
    ),
    "root-absolute": (NAMES, _root(lambda file, start, size: f"btreenode::/etc/hostname:{start}:{size}")),
    "root-of-no-file": (NAMES, _root(lambda file, start, size: f"btreenode::d/none:{start}:{size}")),
    "root-the-manifest": (NAMES, _root(lambda file, start, size: f"btreenode::manifest.ocdbt:{start}:{size}")),
    "root-of-the-other-item": (
        NAMES,
        _root(lambda file, start, size: f"btreenode::../optimizer/manifest.ocdbt:{start}:{size}"),
    ),
    "root-of-a-petabyte": (NAMES, _root(lambda file, start, size: f"btreenode::{file}:{start}:{1 << 50}")),
    "root-beyond-the-file": (NAMES, _root(lambda file, start, size: f"btreenode::{file}:{1 << 60}:{size}")),
    "root-cut": (NAMES, _root(lambda file, start, size: f"btreenode::{file}:{start}:{int(size) - 1}")),
    "root-of-another-height": (NAMES, _manifest(lambda m: m["versions"][-1].update(root_height=3))),
    "root-none": (
        NAMES,
        _manifest(_without_root),
    ),
    "manifest-empty": (NAMES, _data(lambda data: b"", "params/manifest.ocdbt")),
    "manifest-cut": (NAMES, _data(lambda data: data[:-5], "params/manifest.ocdbt")),
    "manifest-of-zeros": (NAMES, _data(lambda data: bytes(len(data)), "params/manifest.ocdbt")),
    "manifest-flipped": (
        NAMES,
        _data(lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "params/manifest.ocdbt"),
    ),
    "manifest-too-long": (NAMES, _data(lambda data: data + b"more", "params/manifest.ocdbt")),
    "manifest-missing": (NAMES, _without("params/manifest.ocdbt")),
    "manifest-of-the-optimizer": (
        NAMES,
        lambda box: (
            shutil.copy(box.newest / "optimizer/manifest.ocdbt", box.newest / "params/manifest.ocdbt") and None
        ),
    ),
    "data-empty": (NAMES, _data(lambda data: b"")),
    "data-cut": (NAMES, _data(lambda data: data[: len(data) // 2])),
    "data-flipped": (NAMES, _data(lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:])),
    "data-missing": (NAMES, _without("params/d")),
    "data-of-zeros": (NAMES, _data(lambda data: bytes(len(data)))),
    "item-missing": ("optimizer", _without("optimizer")),
    "item-of-the-older-step": ("layers.0", _older_tree),
    "items-swapped": ("params|optimizer", _swapped),
    "meta-missing": ("meta", _without("meta")),
    "tree-missing": (NAMES, _without("params/_METADATA")),
    "array-left-over": ("more", put({"more/0": b"1"})),
    "scale-nan": ("scale", _scaled(b"\0\0\xc0\x7f")),
    "scale-negative": ("scale", _scaled(b"\0\0\x80\xc4")),
    "scale-of-another-time": ("scale", _scaled(b"\0\0\0\x44")),
}
"""Name to what the message must name, and how the store is spoiled."""

HARMLESS: dict[str, Spoil] = {
    "written-again": _zarr(),
    "with-a-store-that-nothing-names": lambda box: (
        shutil.copytree(box.newest / ITEM / "d", box.newest / ITEM / "ocdbt.process_0" / "d") and None
    ),
    "without-orbax-s-markers": _without("params/commit_success.txt"),
}

ENTRIES = [
    *(Entry(f"store-{name}", "jax", "refused", names, spoil) for name, (names, spoil) in REFUSED.items()),
    *(Entry(f"store-{name}", "jax", "harmless", "", spoil) for name, spoil in HARMLESS.items()),
]
