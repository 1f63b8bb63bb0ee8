"""Arrays of zarr 2 in files of plain chunks: any box of them, and files that are not what they should be."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from jax_side.formats import write_orbax as writer
from jax_side.formats.write_chunks import chunk_of
from jax_side.formats.write_orbax import write_orbax
from parity.errors import CheckpointError
from parity.formats import BLOCK_BYTES, Array, InMemory, contiguous, open_checkpoint
from parity.formats.raw_chunks import RawChunks


def chunked(path: Path, value: np.ndarray, chunk: tuple[int, ...]) -> RawChunks:
    """Write an array in chunks, padded with a value that must never be seen, and return it."""
    path.mkdir()
    for index in np.ndindex(*(-(-n // side) for n, side in zip(value.shape, chunk, strict=True))):
        whole = np.full(chunk, 99, value.dtype)
        part = value[tuple(slice(i * side, (i + 1) * side) for i, side in zip(index, chunk, strict=True))]
        whole[tuple(map(slice, part.shape))] = part
        (path / (".".join(map(str, index)) or "0")).write_bytes(whole.tobytes())
    return RawChunks(path, value.shape, chunk, value.dtype)


@pytest.mark.parametrize("seed", range(6))
def test_every_box_is_that_of_the_array(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    shape = tuple(random.randint(1, 9) for _ in range(seed % 4))
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    array = chunked(tmp_path / "a", value, tuple(random.randint(1, n) for n in shape))
    for _ in range(40):
        pairs = [sorted((random.randint(0, n), random.randint(0, n))) for n in shape]
        box = tuple((low, high) for low, high in pairs)
        assert np.array_equal(array.read(box), value[tuple(slice(*pair) for pair in box)])
    assert np.array_equal(np.concatenate(list(array.blocks(16))), value.reshape(-1))


def test_a_chunk_that_is_gone_or_of_another_size_is_named(tmp_path: Path) -> None:
    array = chunked(tmp_path / "a", np.ones((4, 4), np.int16), (2, 4))
    (tmp_path / "a" / "1.0").write_bytes(b"short")
    assert array.read(((0, 2), (0, 4))).all()
    with pytest.raises(CheckpointError, match=r"1\.0 has 5 bytes, expected 16"):
        array.read(((1, 3), (0, 4)))
    (tmp_path / "a" / "1.0").unlink()
    with pytest.raises(CheckpointError, match=r"1\.0 is missing: a chunk of the array a"):
        array.read(((3, 4), (0, 1)))


@pytest.mark.parametrize("shape", [(5, 3 << 20), (7, 11, 1 << 19), (9 << 20,), (3,), ()])
def test_chunks_are_nearly_equal_and_none_is_larger_than_a_block(shape: tuple[int, ...]) -> None:
    chunk = chunk_of(shape, 4)
    size = int(np.prod(chunk, dtype=int)) * 4
    counts = [-(-n // side) for n, side in zip(shape, chunk, strict=True)]
    stored = int(np.prod(counts, dtype=int)) * size
    assert size <= BLOCK_BYTES
    assert stored <= int(np.prod(shape, dtype=int)) * 4 * 1.1


@pytest.mark.takes_seconds
def test_a_large_array_comes_back_through_our_reader_and_through_orbax(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    value = np.random.default_rng(0).integers(0, 255, (5, 2 << 20), np.uint8).view(np.float32)
    write_orbax({"a": InMemory(value), "b": 3, "c": "text"}, tmp_path / "o")
    assert len(list((tmp_path / "o" / "a").iterdir())) == 2
    wide = np.broadcast_to(value, (9, *value.shape)).reshape(45, -1)
    write_orbax({"a": InMemory(np.ascontiguousarray(wide))}, tmp_path / "wide")
    assert len(list((tmp_path / "wide" / "a").iterdir())) == 7
    for name, expected in (("o", value), ("wide", wide)):
        found = open_checkpoint(tmp_path / name).tree["a"]
        assert isinstance(found, Array)
        assert found.load().tobytes() == expected.tobytes()
        assert ocp.PyTreeCheckpointer().restore(tmp_path / name)["a"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("change", ["separator", "order"])
def test_chunks_that_lie_in_another_way_are_read_by_tensorstore(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SMALL", 0)  # a file for each chunk, whatever its size
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_orbax({"a": InMemory(value)}, tmp_path / "o")
    folder = tmp_path / "o" / "a"
    described = json.loads((folder / ".zarray").read_text())
    if change == "separator":
        (folder / "0").mkdir()
        (folder / "0.0").rename(folder / "0" / "0")
        described["dimension_separator"] = "/"
    else:
        (folder / "0.0").write_bytes(value.tobytes("F"))
        described["order"] = "F"
    (folder / ".zarray").write_text(json.dumps(described))
    assert np.array_equal(open_checkpoint(tmp_path / "o").tree["a"].load(), value)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64, np.complex128])
def test_a_copy_in_strips_is_the_array(dtype: type) -> None:
    value = np.random.default_rng(0).integers(0, 200, (3, 700, 513)).astype(dtype)
    for axes in ((0, 2, 1), (2, 1, 0), (1, 0, 2), (0, 1, 2)):
        found = contiguous(value.transpose(axes))
        assert found.flags.c_contiguous
        assert np.array_equal(found, value.transpose(axes))
    assert contiguous(value) is value or np.shares_memory(contiguous(value), value)
