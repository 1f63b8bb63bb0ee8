"""What is written for Orbax: small arrays share files, any key is one, each type comes back, by plain Orbax too."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jax_side.formats import write_chunks as cutting
from jax_side.formats import write_orbax as writing
from jax_side.formats import write_store as storing
from jax_side.formats.ocdbt import locate
from jax_side.formats.write_orbax import ORBAX, write_orbax
from jax_side.formats.write_store import StoredArray, write_store
from jax_side.formats.zarr import NAMED, ZARR2
from parity.formats import InMemory, leaves, open_checkpoint

KEYS = (
    *(
        "mlp/~/linear_0",
        "/absolute",
        "a/",
        "a//b",
        "../../out",
        "..",
        ".",
        "a.b",
        "",
        " ",
        "a\\b",
        "a\0b",
        "a\nb",
        "it's",
    ),
    *("ß\u2028é", "k" * 300, "a%2Fb", "_METADATA", "seal.json", "x/.zarray", "manifest.ocdbt", "d"),
)
"""Keys that a path would take for something else; Haiku names modules by the first."""


def by_orbax(path: Path, way: str) -> Any:
    with ocp.StandardCheckpointer() if way == "standard" else ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.mark.takes_seconds
@pytest.mark.parametrize("way", ["standard", "pytree"])
def test_many_small_arrays_share_files_and_plain_orbax_restores_each(tmp_path: Path, way: str) -> None:
    values = {f"l{n}": np.full((n % 5 + 1, 3), n, np.float32) for n in range(500)}
    write_orbax({"params": {name: {"w": InMemory(value)} for name, value in values.items()}, "n": 7}, tmp_path / "o")
    assert sum(path.is_file() for path in (tmp_path / "o").rglob("*")) <= 5
    found = by_orbax(tmp_path / "o", way)
    assert found["n"] == 7
    assert found["params"].keys() == values.keys()
    assert all(np.array_equal(found["params"][name]["w"], value) for name, value in values.items())


def test_several_transactions_are_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of 2 KB, nodes of 1 KB: a tree of several levels, and values in many files."""
    monkeypatch.setattr(storing, "COMMIT_BYTES", 2000)
    monkeypatch.setattr(storing, "CONFIG", {**storing.CONFIG, "max_decoded_node_bytes": 1000})
    values = {f"layer.{n}.kernel": np.arange(400, dtype=np.float64) + n for n in range(60)}
    write_orbax({name: InMemory(value) for name, value in values.items()}, tmp_path / "o")
    assert len(list((tmp_path / "o" / "d").iterdir())) >= 60
    found = by_orbax(tmp_path / "o", "pytree")
    tree = open_checkpoint(tmp_path / "o").tree
    for name, value in values.items():
        assert np.array_equal(found[name], value)
        assert np.array_equal(tree[name].load(), value)


def test_large_arrays_in_a_store_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no directory can have puts arrays of several chunks, the last one padded, into a store."""
    value = np.random.default_rng(0).integers(0, 255, (9, 3 << 20), np.uint8)
    write_orbax({"mlp/~/w": InMemory(value)}, tmp_path / "o")
    assert json.loads((tmp_path / "o" / "_METADATA").read_text())["use_ocdbt"]
    assert np.array_equal(open_checkpoint(tmp_path / "o").tree["mlp/~/w"].load(), value)
    assert np.array_equal(by_orbax(tmp_path / "o", "pytree")["mlp/~/w"], value)


@pytest.mark.parametrize("layout", ["written", "by Orbax"])
def test_any_key_is_a_key_and_no_path(tmp_path: Path, layout: str) -> None:
    home, tree = tmp_path / "in" / "it", {}
    home.mkdir(parents=True)
    for n, key in enumerate(KEYS):
        tree[key] = {"w": np.full(2, n, np.float32)}
    if layout == "written":
        ours = {key: {"w": InMemory(one["w"])} for key, one in tree.items()}
        assert ORBAX.cannot_hold(ours) == []
        write_orbax(ours, home / "o")
    else:
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(home / "o", tree)
    assert [path.name for path in home.iterdir()] == ["o"]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    theirs, found = by_orbax(home / "o", "pytree"), open_checkpoint(home / "o").tree
    for key, one in tree.items():
        assert np.array_equal(theirs[key]["w"], one["w"]), key
        assert np.array_equal(found[key]["w"].load(), one["w"]), key


def test_names_that_become_equal_are_refused() -> None:
    (refused,) = ORBAX.cannot_hold({"a.b": InMemory(np.ones(1)), "a": {"b": InMemory(np.ones(1))}})
    assert refused == ("a.b", "two leaves have this name once their keys are joined by dots")


@pytest.mark.parametrize("name", ["a/", "a//b", "../../out", "a\0b", "k" * 300, "a%2Fb", "ß\u2028é"])
@pytest.mark.parametrize("shape", [(200, 300), (70_001,), (1, 16_384, 1)])
def test_a_large_array_of_any_name_is_one_value_as_it_lies_in_memory(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    """Large ones go through zarr's driver: zeros, Fortran's order and big-endian numbers among them."""
    values = {
        name: np.arange(np.prod(shape), dtype=np.float32).reshape(shape),
        f"{name}/zeros": np.zeros(shape, np.float64),
        f"{name}/turned": np.asfortranarray(np.arange(np.prod(shape), dtype=">i8").reshape(shape)),
        f"{name}/small": np.ones(3, np.int8),
    }
    write_store(tmp_path, [StoredArray(key, InMemory(value), value.shape) for key, value in values.items()], inline=0)
    found = locate(tmp_path)
    for key, value in values.items():
        (place,) = [one for one in found[key] if one.whole]
        data = (tmp_path / place.file).read_bytes()[place.start : place.start + place.size]
        assert data == value.astype(value.dtype.newbyteorder("<")).tobytes(), key


@pytest.mark.parametrize("limit", [1, storing.LARGE])
@pytest.mark.parametrize("shape", [(5, 30_000), (30_001, 5), (7,), ()])
def test_chunks_come_back_whichever_driver_writes_them(
    tmp_path: Path, limit: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of at most 100 kB, the last of them padded."""
    monkeypatch.setattr(storing, "LARGE", limit)
    monkeypatch.setattr(cutting, "BLOCK_BYTES", 100_000)
    value = np.random.default_rng(0).standard_normal(shape)
    write_orbax({"w": InMemory(value)}, tmp_path / "o")
    assert open_checkpoint(tmp_path / "o").tree["w"].load().tobytes() == value.tobytes()
    assert np.asarray(by_orbax(tmp_path / "o", "pytree")["w"]).tobytes() == value.tobytes()


@pytest.mark.parametrize("small", [True, False])
def test_each_type_of_zarr_comes_back(tmp_path: Path, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not small:
        monkeypatch.setattr(writing, "SMALL", 0)
    bits = np.arange(4, dtype=np.uint8)
    values = {}
    for name in (*ZARR2, *NAMED):
        dtype = np.dtype(name)
        narrow = dtype.itemsize == 1 and dtype.kind in "Vb"
        values[name] = (bits % 2).view(dtype) if narrow else np.tile(bits, dtype.itemsize).view(dtype)
    tree = {name: InMemory(value) for name, value in values.items()}
    tree["turned"] = InMemory(np.arange(3, dtype=">f4"))
    assert ORBAX.cannot_hold(tree) == []
    write_orbax(tree, tmp_path / "o")
    theirs, found = by_orbax(tmp_path / "o", "pytree"), open_checkpoint(tmp_path / "o").tree
    for name, value in values.items():
        assert (found[name].dtype, found[name].load().tobytes()) == (value.dtype, value.tobytes()), name
        assert (np.asarray(theirs[name]).dtype, np.asarray(theirs[name]).tobytes()) == (value.dtype, value.tobytes())
    assert found["turned"].load().tolist() == theirs["turned"].tolist() == [0, 1, 2]


def test_types_that_no_zarr_has_are_refused() -> None:
    tree = {name: InMemory(np.zeros(2, getattr(ml_dtypes, name))) for name in ("float8_e4m3", "uint4", "uint2")}
    assert ORBAX.cannot_hold(tree) == [(name, f"zarr 2 has no {name}") for name, _ in leaves_of(tree)]


def leaves_of(tree: Any) -> list[tuple[str, Any]]:
    return [(str(keys[0]), leaf) for keys, leaf in leaves(tree)]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise ValueError("Error writing file [os_error_code='28']")

    monkeypatch.setattr(storing.ts, "Transaction", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_orbax({"a": InMemory(np.ones(2))}, tmp_path / "o")
