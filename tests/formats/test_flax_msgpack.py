"""MessagePack files of Flax are read to the last bit, in chunks too; what Flax does not write is one clear error."""

import os
import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import msgpack
import numpy as np
import optax
import pytest
from flax import nnx, serialization
from flax.training import checkpoints
from flax.training.train_state import TrainState
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager

from parity.errors import CheckpointError
from parity.formats import Array, open_checkpoint, recognise
from tests.formats.flax_trees import array, every_length, every_type, loaded, packed, same, saved


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "state.msgpack"
    path.write_bytes(data)
    return path


@pytest.mark.takes_seconds
def test_every_type_is_read_bit_for_bit(tmp_path: Path) -> None:
    data = serialization.to_bytes(
        {**every_type(), "lengths": every_length(), "scalar": np.float32(1.5), "bf": jnp.bfloat16(2)}
    )
    source = open_checkpoint(written(tmp_path, data))
    assert source.format == "flax-msgpack"
    assert same(loaded(source.tree), serialization.msgpack_restore(data))
    assert isinstance(source.tree["scalar"], Array)
    assert source.tree["scalar"].shape == ()


def test_lists_and_integer_keys_of_a_state_dict_are_kept(tmp_path: Path) -> None:
    data = packed({"a": [array("float32", 2), {1: 2, 10: [3]}], "b": []})
    assert same(loaded(open_checkpoint(written(tmp_path, data)).tree), serialization.msgpack_restore(data))


@pytest.mark.parametrize(("most", "at_once"), [(8, 1 << 24), (12, 1 << 24), (20, 40), (64, 1 << 24), (100, 24)])
def test_chunks_are_one_array_and_every_box_of_it_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, at_once: int
) -> None:
    monkeypatch.setattr("parity.formats.pieces.BLOCK_BYTES", at_once)
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", most)
    values = {"w": array("float32", 3, 4, 5), "v": {"flat": array("bfloat16", 61)}, "thin": array("float64", 9, 1, 3)}
    tree = open_checkpoint(written(tmp_path, serialization.to_bytes(values))).tree
    assert same(loaded(tree), values)
    choose = random.Random(most)
    for found, value in ((tree["w"], values["w"]), (tree["v"]["flat"], values["v"]["flat"])):
        for _ in range(60):
            ends = [sorted(choose.choices(range(n + 1), k=2)) for n in value.shape]
            box = tuple((low, high) for low, high in ends)
            assert found.read(box).tobytes() == value[tuple(slice(*pair) for pair in box)].tobytes(), box
        assert b"".join(block.tobytes() for block in found.blocks(24)) == value.tobytes()


def test_a_lone_array_a_lone_chunked_one_and_an_empty_map_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = array("float32", 40, 3)
    assert same(loaded(open_checkpoint(written(tmp_path, serialization.to_bytes(value))).tree), value)
    assert open_checkpoint(written(tmp_path, serialization.to_bytes({}))).tree == {}
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 100)
    assert same(loaded(open_checkpoint(written(tmp_path, packed(value))).tree), value)


@pytest.mark.takes_seconds
def test_a_train_state_and_a_module_are_read_as_they_were_saved(tmp_path: Path) -> None:
    model = nn.Dense(3)
    params = model.init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
    state = state.apply_gradients(grads=params)
    tree = open_checkpoint(saved(tmp_path / "a", state, 1)).tree
    assert list(tree) == ["step", "params", "opt_state"]
    assert same(loaded(tree["params"]), jax.tree.map(np.asarray, dict(state.params)))
    assert tree["opt_state"]["0"]["count"].load() == 1
    assert list(tree["opt_state"]["0"]["mu"]) == ["bias", "kernel"]
    pure = nnx.to_pure_dict(nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0))))
    tree = open_checkpoint(saved(tmp_path / "b", pure, 1)).tree
    assert same(loaded(tree), jax.tree.map(np.asarray, pure))


def test_the_newest_of_a_directory_is_the_one_that_flax_restores(tmp_path: Path) -> None:
    for step in (9, 10.5, 100, 2e3, -3):
        saved(tmp_path, {"step": step}, step, overwrite=True)
        expected = checkpoints.restore_checkpoint(tmp_path, None)
        source = open_checkpoint(tmp_path)
        assert source.tree == expected
        assert (source.path.name, source.detail.split(",")[0]) == (f"checkpoint_{step}",) * 2
    (tmp_path / "checkpoint_tmp").write_bytes(b"draft")
    (tmp_path / "checkpoint_2000.0.seal.json").write_text("{}")
    assert open_checkpoint(tmp_path).path.name == f"checkpoint_{step}"


def test_a_newest_file_that_is_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "run"
    saved(inner, {"a": 1}, 1).rename(tmp_path / "elsewhere")
    (inner / "checkpoint_2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="checkpoint_2 is a link out of the directory"):
        open_checkpoint(inner)


def distributed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file whose arrays lie beside it, as Flax saves those that no process has whole."""
    monkeypatch.setattr(checkpoints, "_is_multiprocess_array", lambda value: isinstance(value, jax.Array))
    manager = GlobalAsyncCheckpointManager()
    tree = {"a": {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3, jnp.bfloat16)}, "n": 3}
    monkeypatch.setattr(checkpoints, "save_checkpoint", checkpoints.save_checkpoint_multiprocess)
    path = saved(tmp_path, tree, 5, gda_manager=manager)
    manager.wait_until_finished()
    return path


def test_arrays_of_several_processes_are_read_from_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = distributed(tmp_path, monkeypatch)
    tree = open_checkpoint(path).tree
    assert same(loaded(tree["a"]["w"]), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert (str(tree["a"]["b"]), tree["n"]) == ("bfloat16[3]", 3)
    shutil.copytree(tmp_path / "checkpoint_5_gda" / "a", tmp_path / "a")
    for name in (
        "//GDAPlaceholder:../a/w",
        "//GDAPlaceholder:",
        "//GDAPlaceholder:a/x",
        "//GDAPlaceholder:/etc",
        "//GDAPlaceholder:" + "x" * 999,
    ):
        path.write_bytes(packed({"w": name}))
        with pytest.raises(CheckpointError, match="which is not in checkpoint_5_gda"):
            open_checkpoint(path)
    path.with_name("checkpoint_5_gda").rename(tmp_path / "elsewhere")
    for make in (lambda: None, lambda: path.with_name("checkpoint_5_gda").symlink_to(tmp_path / "elsewhere")):
        make()
        with pytest.raises(CheckpointError, match="directory checkpoint_5_gda is missing"):
            open_checkpoint(path)


def test_a_chunk_that_is_gone_beside_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = distributed(tmp_path, monkeypatch)
    (gone,) = (tmp_path / "checkpoint_5_gda" / "a" / "w").glob("[0-9]*")
    gone.unlink()
    with pytest.raises(CheckpointError, match=r"a/w/0\.0 is missing: a chunk of the array a/w"):
        open_checkpoint(path)


def test_opening_and_a_box_cost_nothing_however_large_the_array_is(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_1"
    piece, count, dtype = 1 << 30, 3, b"\xa7float32"
    with path.open("wb") as file:
        file.write(b"\x81" + msgpack.packb("w") + b"\x83" + msgpack.packb("__msgpack_chunked_array__") + b"\xc3")
        file.write(msgpack.packb("shape") + msgpack.packb({"0": count, "1": piece // 4}))
        file.write(msgpack.packb("chunks") + bytes([0x80 | count]))
        for number in range(count):
            head = b"\x93" + msgpack.packb([piece // 4]) + dtype + b"\xc6" + struct.pack(">I", piece)
            file.write(msgpack.packb(str(number)) + b"\xc9" + struct.pack(">IB", len(head) + piece, 1) + head)
            file.seek(piece, os.SEEK_CUR)  # a hole
        file.truncate()
    before = anonymous()
    (found,) = open_checkpoint(tmp_path).arrays().values()
    assert (str(found), found.nbytes) == (f"float32[3,{piece // 4}]", 3 << 30)
    assert not found.read(((0, 3), (7, 9))).any()
    assert anonymous() - before < 32 << 20


def anonymous() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def ext(code: int, *values: Any) -> msgpack.ExtType:
    return msgpack.ExtType(code, b"".join(msgpack.packb(value) for value in values))


F4 = [[2], "float32", bytes(8)]
CHUNKED = {"__msgpack_chunked_array__": True}
PIECES = {"0": ext(1, F4), "1": ext(1, F4)}
BAD: list[tuple[Any, str]] = [
    ({"a": 1, "w": ext(1, [[3], "float32", bytes(8)])}, r"byte 9, an array of float32 and the shape \[3\] has 8 b"),
    ({"w": ext(1, [[-1], "float32", bytes(8)])}, "not described by a shape"),
    ({"w": ext(1, [[True, 2], "float32", bytes(8)])}, "not described by a shape"),
    ({"w": ext(1, [[1 << 62, 1 << 62, 0], "float32", b""])}, "shape .* has 0 bytes"),
    ({"w": ext(1, [[1] * 65, "float32", bytes(4)])}, "not described by a shape"),
    ({"w": ext(1, [[2], "float32", bytes(8), 0])}, "not described by a shape"),
    ({"w": ext(1, F4, 0)}, "not described by a shape"),
    ({"w": ext(1, [ext(1, F4), "float32", bytes(8)])}, "not described by a shape"),
    ({"w": ext(1, [[1], "object", bytes(8)])}, "dtype 'object', which is unknown"),
    ({"w": ext(1, [[1], "f8,f8", bytes(16)])}, "dtype 'f8,f8', which is unknown"),
    ({"w": ext(1, [[1], "datetime64[s]", bytes(8)])}, r"dtype 'datetime64\[s\]', which is unknown"),
    ({"w": ext(1, [[1], "int3", bytes(8)])}, "dtype 'int3', which is unknown"),
    ({"w": ext(2, [1.0, 2])}, "a complex number is not two floats"),
    ({"w": ext(2, [1.0, ext(2, [1.0, 1.0])])}, "an extension with the code 2 lies where none is expected"),
    ({"w": ext(5, F4)}, "has the code 5; Flax writes 1, 2 and 3"),
    ({"w": msgpack.Timestamp(1)}, "has the code 255"),
    ({"w": {None: 1}}, "a key is NoneType, neither text nor an integer"),
    ({"w": {b"k": 1}}, "a key is bytes, neither text nor an integer"),
    ({"w": CHUNKED}, "w is no array in chunks: its shape is not one"),
    ({"w": {**CHUNKED, "shape": {"0": 4}, "chunks": PIECES | {"2": 1}}}, "chunks are not counted arrays"),
    ({"w": {**CHUNKED, "shape": {"0": 5}, "chunks": PIECES}}, "parts of 4 elements, expected 5"),
    ({"w": {**CHUNKED, "shape": {"1": 4}, "chunks": PIECES}}, "its shape is not one"),
    ({"w": {**CHUNKED, "shape": {"0": 4.0}, "chunks": PIECES}}, "its shape is not one"),
    ({"w": {**CHUNKED, "shape": {"0": 0}, "chunks": {}}}, "its chunks are not counted arrays"),
    (
        {"w": {**CHUNKED, "shape": {"0": 4}, "chunks": PIECES | {"1": ext(1, [[2], "int32", bytes(8)])}}},
        "parts of different dtypes: float32, int32",
    ),
    ({"w": {**CHUNKED, "shape": {"0": 3}, "chunks": {"0": ext(1, [[1, 3], "bool", bytes(3)])}}}, r"of bool\[1,3\]"),
    (b"\x82\xa1a\x01\xa1a\x02", "at byte 4, the key 'a' occurs twice in one map"),
    (b"\x81\xa1a\xc1", "at byte 3, a value begins with 0xc1"),
    (b"\x81\xa1a\xa1\xff", "a text is not UTF-8"),
    (b"\x81\xa1a\x01\x00", "at byte 4, its value ends, and 1 bytes follow"),
    (b"\x81\xa1a\xdf\xff\xff\xff\xff", "a container has 4,294,967,295 entries and 0 bytes are left"),
    (b"\x81\xa1a\xc9\xff\xff\xff\xff\x01", "a value has 4,294,967,295 bytes and 0 are left: it is truncated"),
    (b"\x81\xa1a" + b"\x91" * 200 + b"\x01", "nested more than 100 deep"),
    (b"\x81\xa1a" + b"\x81\xa1a" * 200 + b"\x01", "nested more than 100 deep"),
]


@pytest.mark.parametrize(("value", "message"), BAD)
def test_what_flax_does_not_write_is_refused(tmp_path: Path, value: Any, message: str) -> None:
    data = value if isinstance(value, bytes) else msgpack.packb(value)
    path = written(tmp_path, data)
    assert recognise(path).name == "flax-msgpack"
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert str(path) in str(caught.value)


def test_too_many_values_and_too_much_text_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, packed({"a": [0] * 50, "t": "x" * 50}))
    monkeypatch.setattr("parity.formats.msgpack_headers.MOST_TEXT", 51)
    with pytest.raises(CheckpointError, match="its text and bytes have more than 51 bytes"):
        open_checkpoint(path)
    monkeypatch.setattr("parity.formats.msgpack_headers.MOST_VALUES", 50)
    with pytest.raises(CheckpointError, match="at byte 53, it has more than 50 values"):
        open_checkpoint(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = packed({"w": array("float32", 3), "c": 1j, "s": "text", "x": {"y": [1.5, None, 1 << 40]}})
    for end in range(len(data)):
        with pytest.raises(CheckpointError, match=r"truncated|are left|an empty file|starts with"):
            open_checkpoint(written(tmp_path, data[:end]))


@pytest.mark.takes_seconds
def test_a_changed_byte_is_an_error_or_another_tree_and_nothing_else(tmp_path: Path) -> None:
    data = packed(
        {"w": array("float32", 3), "c": 1j, "s": "text", "x": {"y": [1.5, None, 1 << 40]}, "e": np.zeros(0)}
    )
    choose, opened = random.Random(0), 0
    for at in range(len(data)):
        for byte in choose.sample(range(256), 6):
            path = written(tmp_path, data[:at] + bytes([byte]) + data[at + 1 :])
            with suppress(CheckpointError):
                loaded(open_checkpoint(path).tree)
                opened += 1
    assert opened > 50  # most bytes of arrays, texts and numbers


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            b"\x89HDF\r\n\x1a\n",
            b"\x80\x02}q\0.",
            b"\x80\x04\x95\0",
            b"\x93NUMPY\x01\0",
        ),
        *(b"\x82\x00\xa1a", b"\x81\xa3\xff\xfe\xfd\x01", b"\x81\xa3\0\1\2\x01", b"\x81", b"\x90", b"\xa1a", b"\xc0"),
        *(b"\xc7\x01\x01\x93\0", b"\xd4\x05\x93", b"\x80\x80", b"plain text"),
    ],
)
def test_other_files_are_not_taken_for_it(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"a file that starts with|a pickle"):
        recognise(written(tmp_path, data))
