"""Every byte of a checkpoint is as it was sealed, or the file and the leaves that are not are named."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checkpoints import (
    FILE,
    ByteRange,
    Fault,
    describe,
    is_intact,
    ranges,
    read_seal,
    require_verified,
    verify,
)
from parity.errors import DamagedError, UnsealedError
from parity.formats import boxes, extents
from parity.state import digest_text
from tests.parity.test_digest import KINDS, make
from tests.support.sealed import FILES, PLACES, flip, save

NOT_SEALED = "does not hold the bytes that were sealed"


@pytest.fixture(params=[1, 2], ids=["schema 1", "schema 2"])
def path(tmp_path: Path, request: Any) -> Path:
    return save(tmp_path, 10, schema=request.param)


def found(path: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    result = verify(path)
    assert result.whole == (not result.faults)
    return [(fault.file, fault.problem, fault.leaves) for fault in result.faults]


def test_what_was_sealed_is_whole(path: Path) -> None:
    result = verify(path)
    assert result.whole
    assert result.seal == read_seal(path) == require_verified(path)
    assert not result.unsealed


def test_every_flipped_bit_names_its_file_and_its_leaf(path: Path) -> None:
    for file, data in FILES.items():
        for place in range(len(data)):
            flip(path / file, place)
            hit = [leaf for leaf, (f, start, size) in PLACES.items() if f == file and start <= place < start + size]
            assert found(path) == [(file, NOT_SEALED, tuple(hit))]
            with pytest.raises(DamagedError, match=f"10 is not what was sealed:\n  {file}: {NOT_SEALED}"):
                require_verified(path)
            flip(path / file, place)
    assert found(path) == []


@pytest.mark.parametrize(
    ("size", "leaves"),
    [
        (12, ()),
        (9, ("model.params.bias",)),
        (6, ("model.params.bias",)),
        (5, ("model.params.bias", "model.params.weight")),
        (0, ("model.params.bias", "model.params.weight")),
    ],
)
def test_a_truncated_file_names_the_leaves_that_are_cut(size: int, leaves: tuple[str, ...], path: Path) -> None:
    (path / "params/shard").write_bytes(FILES["params/shard"][:size])
    assert found(path) == [("params/shard", f"has {size} bytes, was sealed with 16", leaves)]


def test_a_missing_file_names_its_leaves_and_a_left_over_one_names_none(path: Path) -> None:
    (path / "optimizer/shard").unlink()
    (path / "params" / "other").touch()
    assert found(path) == [
        ("optimizer/shard", "is missing", ("optimizer.first_moment.weight",)),
        ("params/other", "is not in the seal", ()),
    ]


def test_files_that_were_exchanged_are_both_named(path: Path) -> None:
    a, b = path / "optimizer/shard", path / "params/shard"
    swapped = a.read_bytes(), b.read_bytes()
    b.write_bytes(swapped[0])
    a.write_bytes(swapped[1])
    assert [file for file, _, _ in found(path)] == ["optimizer/shard", "params/shard"]


def test_a_checkpoint_of_another_step_is_named_but_a_copy_elsewhere_is_whole(path: Path, tmp_path: Path) -> None:
    path.rename(tmp_path / "20")
    assert found(tmp_path / "20") == [(FILE, "is of step 10: it belongs to another checkpoint", ())]
    (tmp_path / "20").rename(tmp_path / "shipped")
    assert verify(tmp_path / "shipped").whole


def test_without_a_seal_nothing_can_be_said(path: Path) -> None:
    (path / FILE).unlink()
    result = verify(path)
    assert result.unsealed
    assert not result.whole
    with pytest.raises(UnsealedError, match=r"has no seal: seal\.json is missing, and nothing"):
        require_verified(path)


def test_a_damaged_seal_is_damage_and_not_the_want_of_one(path: Path) -> None:
    flip(path / FILE, 40)
    result = verify(path)
    assert not result.unsealed
    assert [fault.file for fault in result.faults] == [FILE]
    with pytest.raises(DamagedError, match=r"10 is not what was sealed:\n  seal\.json: "):
        require_verified(path)


@pytest.mark.parametrize("where", [FILE, "params/shard", "extra"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_lies_there_is_reported_and_nothing_is_raised(kind: str, where: str, path: Path) -> None:
    (path / where).unlink(missing_ok=True)
    make(kind, path / where)
    result = verify(path)
    assert result.faults
    assert not result.whole
    assert not result.unsealed


def test_a_checkpoint_that_is_not_there_is_reported(tmp_path: Path) -> None:
    assert verify(tmp_path / "10").unsealed


def test_a_file_that_vanishes_while_it_is_read_does_not_hide_the_damage_in_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(path / "optimizer/shard", 0)
    sizes = dict.fromkeys(FILES, 0) | {name: len(data) for name, data in FILES.items()}
    (path / "params/shard").unlink()
    monkeypatch.setattr(sys.modules["parity.checkpoints.verify"], "list_files", lambda path: sizes)
    assert found(path) == [
        ("optimizer/shard", NOT_SEALED, ("optimizer.first_moment.weight",)),
        ("params/shard", "cannot be read: No such file or directory", ("model.params.bias", "model.params.weight")),
    ]


def test_people_are_told_a_few_leaves_and_how_many_more() -> None:
    fault = Fault(file="a", problem="is missing", leaves=tuple("abcdefg"))
    assert describe([fault]) == [("a", "is missing (leaves: a, b, c, d, e and 2 more)")]
    assert describe([fault], most=7) == [("a", "is missing (leaves: a, b, c, d, e, f, g)")]
    assert describe([fault], most=None) == [("a", "is missing (leaves: a, b, c, d, e, f, g)")]
    assert describe([replace(fault, leaves=())]) == [("a", "is missing")]


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matrix": ((6, 7), ()),
    "transposed": ((6, 7), (1, 0)),
    "kernel": ((2, 3, 4, 5), (2, 3, 1, 0)),
    "one row that is larger than a piece": ((1, 1, 50), ()),
    "no axes": ((), ()),
    "no elements": ((3, 0), (1, 0)),
}


@pytest.mark.takes_seconds
@pytest.mark.parametrize("shape", SHAPES)
def test_an_array_is_verified_in_pieces_and_every_bit_of_it_counts(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its range has no digest: the digest of the leaf is made from the blocks of what is read."""
    monkeypatch.setattr("parity.state.leaf_blocks.BLOCK", 8)
    monkeypatch.setattr(ranges, "PIECE", 24)
    extent, order = SHAPES[shape]
    value = np.arange(np.prod(extent), dtype=np.float32).reshape(extent)
    data, text = (value.transpose(order) if order else value).tobytes(), digest_text(value, order)
    found = ByteRange("weight", 5, len(data))
    (tmp_path / "weight").write_bytes(b"above" + data + b"below")
    assert is_intact(tmp_path, found, text)
    for place in range(len(data)):
        flip(tmp_path / "weight", 5 + place)
        assert not is_intact(tmp_path, found, text)
        flip(tmp_path / "weight", 5 + place)
    for size in range(5, 5 + len(data)):
        (tmp_path / "weight").write_bytes((b"above" + data)[:size])
        assert not is_intact(tmp_path, found, text)


def test_no_more_than_a_piece_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PIECE", 1000)
    value = np.arange(100 * 60, dtype=np.float64).reshape(100, 60)
    (tmp_path / "weight").write_bytes(value.tobytes())
    pieces = [extents(box) for box in boxes(value.shape, ranges.PIECE // 8)]
    assert max(np.prod(extent) for extent in pieces) * 8 <= 1000
    assert sum(np.prod(extent) for extent in pieces) == value.size
    assert is_intact(tmp_path, ByteRange("weight", 0, value.nbytes), digest_text(value))
