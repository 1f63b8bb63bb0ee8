"""Small files that name more than anything can walk: refused by every command, bounded, with nothing left."""

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from parity.cli import main


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def references(step: Callable[[bytes, bytes], bytes], depth: int) -> bytes:
    """Return a pickle in which each level names the one before twice."""
    out = b"\x80\x02]q\x00"
    for at in range(1, depth):
        out += step(b"h" + bytes([at - 1]), b"q" + bytes([at]))
    return out


NESTED: dict[str, Callable[[bytes, bytes], bytes]] = {
    "lists": lambda get, put: b"]" + put + b"(" + get + get + b"e",
    "tuples": lambda get, put: get + get + b"\x86" + put,
    "dicts": lambda get, put: b"}" + put + b"(" + text("a") + get + text("b") + get + b"u",
    "objects": lambda get, put: b"cno\nsuch\n" + get + get + b"\x86R" + put,
    "sets": lambda get, put: b"c__builtin__\nset\n](" + get + get + b"e\x85R" + put,
}


def view(size: tuple[Any, ...], strides: tuple[Any, ...], offset: Any = 0) -> bytes:
    """Return the opcodes of a tensor over a storage of 16 elements."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x10tQ"
    rest = b"".join(pickle.dumps(part, 2)[2:-1] for part in (offset, size, strides, False))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"ccollections\nOrderedDict\n)RtR"


def path_of_paths(depth: int) -> bytes:
    out = b"\x80\x02" + text("x" * 64)
    for at in range(depth):
        out += b"q" + bytes([at]) + b"0cpathlib\nPosixPath\n" + (b"h" + bytes([at])) * 2 + b"\x86R"
    return out + b"."


PICKLES: dict[str, bytes] = {
    **{f"nested {name}": references(step, 62) + b"." for name, step in NESTED.items()},
    **{f"30 nested {name} around a tensor": (references(step, 31) + b".") for name, step in NESTED.items()},
    "a key of nested tuples": b"\x80\x02}" + references(NESTED["tuples"], 62)[2:] + b"K\x01s.",
    "a key of nested tuples, protocol 0": b"(" + references(NESTED["tuples"], 62)[2:] + b"K\x01d.",
    "2 million references to one text": b"\x80\x02" + text("x" * 1000) + b"q\x000](" + b"h\x00" * 2_000_000 + b"e.",
    "a thousand references to a megabyte": b"\x80\x02"
    + text("x" * (1 << 20))
    + b"q\x000]("
    + b"h\x00" * 1000
    + b"e.",
    "marks": b"\x80\x02" + b"(" * 3_000_000 + b".",
    "paths of paths": path_of_paths(60),
    "copies of a list": b"\x80\x02]("
    + b"K\x01" * 90_000
    + b"eq\x00]("
    + b"cbuiltins\nlist\nh\x00\x85R" * 90_000
    + b"e.",
    "64 bytes for 64 GB": b"\x80\x02}" + text("w") + view((1 << 34,), (0,)) + b"s.",
    "64 bytes for 64 GB, overlapping": b"\x80\x02}" + text("w") + view((1 << 17, 1 << 17), (0, 0)) + b"s.",
    "many views of 64 bytes": b"\x80\x02}("
    + b"".join(text(f"w{at}") + view((1 << 24,), (0,), at % 16) for at in range(40))
    + b"u.",
    **{
        f"a tensor of {size} by {strides}": b"\x80\x02}" + text("w") + view(size, strides) + b"s."
        for size, strides in (
            ((-1,), (1,)),
            ((-1, -4), (1, 1)),
            ((0, -4), (1, 1)),
            ((1 << 70, 0), (1, 1)),
            ((4,), (-1,)),
            (("a",), (1,)),
            ((2.0,), (1,)),
            ((4,), ()),
            ((1,) * 100, (1,) * 100),
        )
    },
}


@pytest.mark.parametrize("kind", PICKLES)
@pytest.mark.takes_seconds
def test_a_pickle_that_names_too_much_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {"data.pkl": PICKLES[kind], "version": b"3\n", "data/0": bytes(64)}.items():
            archive.writestr(f"archive/{name}", data)
    refused_by_all(path, tmp_path / "out", "safetensors", capsys)


def refused_by_all(path: Path, target: Path, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that each command refuses a file in one line, and leaves nothing."""
    for words in (
        ["inspect", path],
        ["verify", path],
        ["convert", path, target, "--to", to],
        ["compare", path, path],
    ):
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2, words
        said = capsys.readouterr().err
        assert said.startswith("parity: error: ")
        assert said.count("\n") == 1
        assert len(said) < 600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


MESSAGES: dict[str, bytes] = {
    "a million integers": msgpack.packb({"a": list(range(1_000_000))}),
    "a million keys": msgpack.packb({str(at): None for at in range(1_000_000)}),
    "a million texts": b"\x81\xa1a\xdd\x00\x0f\x42\x40" + b"\xa1x" * 1_000_000,
}


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.takes_seconds
def test_a_message_of_too_many_values_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "x.msgpack").write_bytes(MESSAGES[kind])
    refused_by_all(tmp_path / "x.msgpack", tmp_path / "out", "flax-msgpack", capsys)


@pytest.mark.takes_seconds("described1")
@pytest.mark.parametrize(
    "described", ["[" * 200_000, json.dumps([1] * 400_000), json.dumps({"tuple": [[]] * 1_200_000})]
)
def test_a_described_tree_of_too_much_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], described: str
) -> None:
    header = json.dumps({"__metadata__": {"parity.tree": described}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    refused_by_all(tmp_path / "x.safetensors", tmp_path / "out", "torch.save", capsys)
