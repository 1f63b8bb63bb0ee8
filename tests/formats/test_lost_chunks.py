"""Stores that lost bytes: a chunk that Orbax wrote and that is gone is refused, never read as zeros."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from parity.cli import main
from parity.errors import CheckpointError
from parity.formats import open_checkpoint

TREE = {
    "a": np.arange(64, dtype=np.float32).reshape(8, 8) + 1,
    "z": np.zeros((8, 8), np.float32),
    "n": np.int64(5),
    "big": np.arange(4000, dtype=np.float64),
}
LAYOUTS = {
    f"zarr{3 if zarr3 else 2}{', OCDBT' if ocdbt else ''}{', plain' if plain else ''}": (zarr3, ocdbt, plain)
    for zarr3 in (False, True)
    for ocdbt in (False, True)
    for plain in (False, True)
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the tree by Orbax in each of its layouts, in small chunks."""
    home = tmp_path_factory.mktemp("orbax")
    for name, (zarr3, ocdbt, plain) in LAYOUTS.items():
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3, use_compression=not plain)
        chunks = {key: ocp.SaveArgs(chunk_byte_size=128) for key in TREE}
        with ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(home / name, args=ocp.args.PyTreeSave(TREE, save_args=chunks))
    return home


def refused(path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """Yield what each command says of a checkpoint that it must refuse."""
    for words in (["inspect", path], ["verify", path], ["convert", path, target, "--to", "flax-msgpack"]):
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        assert code in (1, 2), words
        assert "Traceback" not in said.err
        yield " ".join((said.out + said.err).split())
    assert not target.exists()


def chunk_files(path: Path) -> list[Path]:
    """Return the files that hold chunks of zarr, or values of OCDBT that are in use."""
    found = [one for one in sorted(path.rglob("*")) if one.is_file() and one.parent != path]
    used = [one for one in found if one.name not in (".zarray", "zarr.json") and "array_metadatas" not in one.parts]
    return [one for one in used if "manifest" not in one.name]


@pytest.mark.takes_seconds("a-zarr2")
@pytest.mark.parametrize("layout", [name for name, (_, ocdbt, _) in LAYOUTS.items() if not ocdbt])
@pytest.mark.parametrize("key", ["a", "z", "n", "big"])
def test_a_chunk_file_that_is_gone_is_named(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str, key: str
) -> None:
    shutil.copytree(saved / layout, tmp_path / "c")
    gone = next(one for one in reversed(chunk_files(tmp_path / "c")) if one.is_relative_to(tmp_path / "c" / key))
    gone.unlink()
    for said in refused(tmp_path / "c", tmp_path / "out", capsys):
        assert f"{gone.relative_to(tmp_path / 'c')} is missing: a chunk of the array {key}" in said


@pytest.mark.parametrize("layout", [name for name, (_, ocdbt, _) in LAYOUTS.items() if ocdbt])
def test_a_data_file_of_ocdbt_that_is_gone_or_cut_is_named(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    hurt = 0
    for number, file in enumerate(chunk_files(saved / layout)):
        for spoil in ("gone", "cut"):
            path = tmp_path / f"{number}{spoil}"
            shutil.copytree(saved / layout, path)
            mine = path / file.relative_to(saved / layout)
            mine.unlink() if spoil == "gone" else mine.write_bytes(mine.read_bytes()[:-1])
            try:
                tree = open_checkpoint(path).tree
            except CheckpointError:
                hurt += 1
                assert all(said for said in refused(path, tmp_path / "out", capsys))
                continue
            for key, value in TREE.items():  # a file that an older version of the store used
                assert np.array_equal(tree[key].load() if hasattr(tree[key], "load") else tree[key], value)
    assert hurt >= 2


@pytest.mark.parametrize("layout", ["zarr2, plain", "zarr3"])
def test_a_chunk_that_is_short_is_no_whole_checkpoint(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    shutil.copytree(saved / layout, tmp_path / "c")
    short = next(one for one in reversed(chunk_files(tmp_path / "c")) if one.is_relative_to(tmp_path / "c" / "a"))
    short.write_bytes(short.read_bytes()[:-3])
    assert main(["verify", str(tmp_path / "c")]) in (1, 2)
    assert main(["convert", str(tmp_path / "c"), str(tmp_path / "out"), "--to", "flax-msgpack"]) == 2
    assert "cannot be read" in capsys.readouterr().err or layout != "zarr3"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c"]


def test_a_description_that_does_not_say_that_all_is_there_is_read_as_orbax_reads_it(
    saved: Path, tmp_path: Path
) -> None:
    """Older versions of Orbax leave out chunks of zeros: they are zeros, and that is said."""
    shutil.copytree(saved / "zarr2", tmp_path / "c")
    described = json.loads((tmp_path / "c" / "_METADATA").read_text())
    del described["store_array_data_equal_to_fill_value"]
    (tmp_path / "c" / "_METADATA").write_text(json.dumps(described))
    for one in (tmp_path / "c" / "z").glob("[0-9]*"):
        one.unlink()
    source = open_checkpoint(tmp_path / "c")
    assert "2 chunks are not there and read as zeros" in source.detail
    assert not source.tree["z"].load().any()


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return edit


LARGE = 1 << 51
HOSTILE: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "chunk of 2^51": ("zarr2", lambda d: d.update(chunks=[LARGE, 1], shape=[8, 8])),
    "array and chunk of 2^47": ("zarr2", lambda d: d.update(chunks=[1 << 47, 1], shape=[1 << 47, 1])),
    "2^44 chunks": ("zarr2", lambda d: d.update(chunks=[4, 8], shape=[1 << 46, 8])),
    "negative": ("zarr2", lambda d: d.update(shape=[-1, 8])),
    "shard of 2^51": (
        "zarr3",
        lambda d: d["chunk_grid"]["configuration"].update(chunk_shape=[LARGE, 8]),
    ),
    "shard and array of 2^44": (
        "zarr3",
        lambda d: (d.update(shape=[1 << 44, 8]), d["chunk_grid"]["configuration"].update(chunk_shape=[1 << 44, 8])),
    ),
    "separator": ("zarr2", lambda d: d.update(dimension_separator=7)),
    "shape of text": ("zarr3", lambda d: d.update(shape="8x8")),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_description_of_more_than_there_is_bytes_for_is_refused(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    layout, change = HOSTILE[kind]
    shutil.copytree(saved / layout, tmp_path / "c")
    edited(change)(tmp_path / "c" / "a" / (".zarray" if layout == "zarr2" else "zarr.json"))
    assert all(said for said in refused(tmp_path / "c", tmp_path / "out", capsys))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c"]
