"""`torch.save` files are read to the last bit without PyTorch, and nothing in them is executed."""

import io
import os
import pickle
import re
import struct
import subprocess
import sys
import zipfile
from argparse import Namespace
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.errors import CheckpointError
from parity.formats import Array, Opaque, leaf_name, leaves, open_checkpoint
from tests.formats.shapes import bits, every_type


def saved(tmp_path: Path, value: Any, **options: Any) -> Path:
    path = tmp_path / "x.pt"
    torch.save(value, path, **options)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_type_is_read_bit_for_bit(tmp_path: Path, protocol: int) -> None:
    expected = every_type()
    source = open_checkpoint(saved(tmp_path, expected, pickle_protocol=protocol))
    assert source.format == "torch.save"
    assert list(source.tree) == list(expected)
    for name, tensor in expected.items():
        found = source.tree[name]
        assert isinstance(found, Array), name
        assert (found.shape, found.dtype.name) == (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")), (
            name
        )
        assert bits(found) == bits(tensor) == bits(found.load()), name
    assert source.tree["tied"].shared == source.tree["tied_again"].shared
    assert source.tree["tied"].shared not in (source.tree["offset"].shared, source.tree["scalar"].shared)


def test_containers_and_scalars_keep_their_types(tmp_path: Path) -> None:
    value = {
        "ordered": OrderedDict(a=1),
        "default": defaultdict(int, b=2),
        3: [1, (2.5, None), {"deep": True}],
        "complex": complex(1, -0.0),
        "huge": 1 << 200,
        "text": "ß\n",
        "bytes": b"\x00\xff",
        "numpy": np.arange(6, dtype=">i4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": np.float64(0.1),
        "path": Path("/a/b"),
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "nan": float("nan"),
        "empty": {},
    }
    tree = open_checkpoint(saved(tmp_path, value)).tree
    assert tree[3] == [1, (2.5, None), {"deep": True}]
    assert (tree["ordered"], tree["default"], tree["empty"]) == ({"a": 1}, {"b": 2}, {})
    assert repr(tree["complex"]) == "(1-0j)"
    assert (tree["huge"], tree["text"], tree["bytes"]) == (1 << 200, "ß\n", b"\x00\xff")
    assert tree["numpy"].dtype.isnative
    assert tree["numpy"].load().tolist() == tree["fortran"].load().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (tree["scalar"], tree["path"], tree["size"], tree["device"]) == (0.1, "/a/b", (2, 3), "cpu")
    assert tree["nan"] != tree["nan"]


def test_a_whole_training_state_is_read(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    tree = open_checkpoint(saved(tmp_path, state)).tree
    expected = torch.load(tmp_path / "x.pt", weights_only=True)
    flat = dict(leaves(expected))
    for keys, leaf in leaves(tree):
        other = flat.pop(keys)
        assert bits(leaf) == bits(other) if isinstance(leaf, Array) else leaf == other, leaf_name(keys)
    assert not flat


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_objects_stay_records_and_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    path = saved(
        tmp_path, {"bomb": Bomb(marker), "args": Namespace(lr=0.1, deep=[torch.ones(2)]), "w": torch.ones(2)}
    )
    source = open_checkpoint(path)
    assert source.tree["bomb"] == Opaque("posix.system", f"touch {marker}")
    assert source.tree["args"].name == "argparse.Namespace"
    assert source.tree["args"].content["lr"] == 0.1
    assert list(source.opaque()) == [("bomb",), ("args",)]
    assert list(source.arrays()) == [("w",)]
    assert not marker.exists()
    with pytest.raises(Exception, match=r"posix\.system"):
        torch.load(path, weights_only=True)


def test_no_framework_is_imported(tmp_path: Path) -> None:
    path = saved(tmp_path, every_type())
    code = (
        "import sys; from pathlib import Path; from parity.formats import open_checkpoint; "
        f"s = open_checkpoint(Path({str(path)!r})); [a.load() for a in s.arrays().values()]; "
        "print({n.split('.')[0] for n in sys.modules} & {'torch', 'jax', 'flax', 'orbax', 'tensorstore', 'pickle'})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(re.findall(r"\w+", ran.stdout)) <= {"set", "pickle"}  # NumPy imports pickle


def test_every_flipped_bit_of_a_record_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(8.0)})
    source = open_checkpoint(path)
    assert source.verify is not None
    assert source.verify() == []
    data = bytearray(path.read_bytes())
    start = data.index(torch.arange(8.0).numpy().tobytes())
    for at in range(start, start + 32):
        broken = bytearray(data)
        broken[at] ^= 1 << at % 8
        path.write_bytes(broken)
        found = open_checkpoint(path)
        assert found.verify is not None
        assert found.verify() == [("data/0", "does not fit its CRC-32")]


def test_a_file_without_checksums_says_so(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        path = saved(tmp_path, {"w": torch.ones(4)})
    finally:
        torch.serialization.set_crc32_options(before)
    source = open_checkpoint(path)
    assert source.verify is None
    assert "without checksums" in source.unproven


def repacked(path: Path, change: Any, **more: bytes) -> None:
    """Write an archive again with records that a function changes; None leaves one out."""
    with zipfile.ZipFile(path) as old:
        records = {info.filename: old.read(info) for info in old.infolist()}
    folder = next(iter(records)).partition("/")[0]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in {**records, **{f"{folder}/{k}": v for k, v in more.items()}}.items():
            changed = change(name.partition("/")[2], data)
            if changed is not None:
                new.writestr(name, changed)


def pickled(value: Any) -> bytes:
    out = io.BytesIO()
    pickle.dump(value, out, 2)
    return out.getvalue()


def laughing() -> Any:
    value: Any = ["lol"] * 10
    for _ in range(9):
        value = [value] * 10
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


HOSTILE = {
    "no pickle": (lambda n, d: None if n == "data.pkl" else d, r"no data\.pkl"),
    "a storage is gone": (lambda n, d: None if n == "data/0" else d, r"record 'data/0' is missing"),
    "a storage is short": (lambda n, d: d[:8] if n == "data/0" else d, r"reaches beyond the 8 bytes"),
    "big-endian": (lambda n, d: b"big" if n == "byteorder" else d, r"big-endian"),
    "TorchScript": (lambda n, d: b"" if n == "version" else d, r"TorchScript"),
    "the pickle is cut": (lambda n, d: d[:20] if n == "data.pkl" else d, r"no pickle"),
    "holds itself": (lambda n, d: pickled(endless()) if n == "data.pkl" else d, r"holds itself"),
    "a billion laughs": (lambda n, d: pickled(laughing()) if n == "data.pkl" else d, r"more than [0-9,]+ values"),
    "deep": (lambda n, d: b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"." if n == "data.pkl" else d, r"nested"),
    "an endless integer": (lambda n, d: pickled(1 << 20_000) if n == "data.pkl" else d, r"longer than any count"),
    "no end": (lambda n, d: b"\x80\x02}" if n == "data.pkl" else d, r"it has no end"),
    "an extension code": (lambda n, d: b"\x80\x02\x82\x01." if n == "data.pkl" else d, r"EXT1, which only code"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_one_clear_error(tmp_path: Path, case: str) -> None:
    change, message = HOSTILE[case]
    path = saved(tmp_path, {"w": torch.ones(8)})
    repacked(path, change, **({"constants.pkl": b""} if case == "TorchScript" else {}))
    with pytest.raises(CheckpointError, match=message) as caught:
        list(leaves(open_checkpoint(path).tree))
    assert str(path) in str(caught.value) or case == "a billion laughs"


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_one_clear_error(tmp_path: Path, keep: float) -> None:
    path = saved(tmp_path, {"w": torch.ones(1000)})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(CheckpointError, match=r"truncated|empty file"):
        open_checkpoint(path)


@pytest.mark.parametrize("further", [1, 40, 100_000])
def test_a_directory_that_is_said_to_lie_further_back_is_one_clear_error(tmp_path: Path, further: int) -> None:
    """`zipfile` takes the difference from each record, whose offset is then below 0."""
    path = saved(tmp_path, {"w": torch.ones(8)})
    repacked(path, lambda name, data: data)
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\5\6") + 16
    struct.pack_into("<I", data, end, struct.unpack_from("<I", data, end)[0] + further)
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"record 'byteorder' reaches beyond|record 'data.pkl' reaches beyond"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("before", "behind", "message"),
    [
        (True, b"", r"holds [0-9,]+ bytes before its archive"),
        (False, b"step 4", "holds bytes behind its archive"),
        (False, b"\0" * 70_000, "no whole archive"),
    ],
)
def test_a_file_that_is_more_than_an_archive_is_refused(
    tmp_path: Path, before: bool, behind: bytes, message: str
) -> None:
    """A reader of archives sees the last one alone: two files that differ in the first would be called equal."""
    path = saved(tmp_path, {"w": torch.ones(8)})
    first = path.read_bytes()
    assert [*leaves(open_checkpoint(path).tree)]
    torch.save({"w": torch.zeros(8)}, path)
    path.write_bytes((first if before else b"") + path.read_bytes() + behind)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert str(path) in str(caught.value)


def test_what_is_no_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "old.pkl").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "text").write_text("hello, this is text")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, message in {
        "old.pkl": "a pickle, which runs code when it is loaded",
        "text": r"starts with b'hello, t'",
        "empty": "an empty directory",
        "pipe": "neither a file nor a directory",
        "gone": "does not exist",
    }.items():
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(tmp_path / name)
