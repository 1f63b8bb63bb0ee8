"""The digest of a leaf is the same however it comes: whole, in chunks or in shards, in one process or in several."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from parity.state import LeafDigest, digest_text, leaf_blocks
from parity.state.leaf_blocks import block_shape
from tests.support.small import quick

DTYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.complex128, np.int64, np.uint8, np.bool_, ">i4")
Box = tuple[tuple[int, int], ...]


def values(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of noise, every element of it another one where the type is wide enough."""
    count = math.prod(shape)
    item = np.dtype(dtype).itemsize
    data = np.random.default_rng(count).integers(0, 2 if dtype is np.bool_ else 256, count * item, np.uint8)
    return data.view(dtype).reshape(shape)


def reference(value: Any, order: tuple[int, ...] = ()) -> str:
    """Return the digest as docs/versions.md describes it, written down once more without the accumulator."""
    sides = block_shape(value.shape, order)
    digests = b""
    for index in np.ndindex(*(-(-n // side) if side else 0 for n, side in zip(value.shape, sides, strict=True))):
        block = value[tuple(slice(i * side, (i + 1) * side) for i, side in zip(index, sides, strict=True))]
        digests += xxhash.xxh3_128_digest((block.transpose(order) if order else block).tobytes())
    kind = f"{value.dtype}[{','.join(map(str, value.shape))}]" + ("@" + ",".join(map(str, order)) if order else "")
    return f"{kind} blocks {xxhash.xxh3_128_hexdigest(digests)}"


def placed(value: Any, box: Box) -> tuple[list[int], Any]:
    """Return the arguments that add a box of an array."""
    return [low for low, _ in box], value[(*(slice(low, high) for low, high in box), ...)]


@contextmanager
def small_blocks() -> Iterator[None]:
    """Let blocks be small, so that small arrays have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaf_blocks, "BLOCK", 16)
        yield


# The grid.


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((), ()),
        ((0,), (0,)),
        ((3, 0), (3, 0)),
        ((7,), (7,)),
        ((1 << 18,), (1 << 18,)),
        (((1 << 18) + 1,), (1 << 18,)),
        ((1, 1 << 20, 1), (1, 1 << 18, 1)),
        ((512, 512), (512, 512)),
        ((513, 512), (512, 512)),
        ((4096, 600), (256, 600)),
        ((1 << 20, 2), (1 << 17, 2)),
        ((2, 1 << 20), (2, 1 << 17)),
        ((100, 1 << 20), (16, 1 << 14)),
        ((1000, 9, 100), (256, 9, 100)),
        ((48, 1024, 1024), (1, 256, 1024)),
        ((512, 256, 3, 3), (64, 256, 3, 3)),
        ((16, 16, 16, 16, 16), (4, 16, 16, 16, 16)),
        ((10**9, 10**9), (16, 1 << 14)),
    ],
)
def test_the_grid_follows_from_the_shape(shape: tuple[int, ...], block: tuple[int, ...]) -> None:
    assert block_shape(shape) == block


@given(shape=st.lists(st.integers(1, 30_000), max_size=5), data=st.data())
@quick(100)
def test_a_block_is_never_too_large_and_never_needlessly_small(shape: list[int], data: Any) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    block = block_shape(shape, order)
    assert block_shape([shape[axis] for axis in order]) == tuple(block[axis] for axis in order)
    assert math.prod(block) <= leaf_blocks.BLOCK
    assert all(1 <= side <= n for side, n in zip(block, shape, strict=True))
    assert all(side == n or side & (side - 1) == 0 for side, n in zip(block, shape, strict=True)) or block == (
        *shape,
    )
    assert block == tuple(shape) or 4 * math.prod(block) > leaf_blocks.BLOCK


@pytest.mark.parametrize("order", [(), (1, 0)])
@pytest.mark.parametrize("shape", [(700, 1100), (3000, 1500), (300_000, 3), (20, 20_000)])
def test_blocks_of_full_size_are_digested_as_the_guide_describes(
    shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    value = values(shape, np.float32)
    assert digest_text(value, order) == digest_text(np.asfortranarray(value), order) == reference(value, order)


@pytest.mark.parametrize("order", [(), (1, 0)])
def test_a_matrix_is_digested_where_it_lies(order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own order no byte of it is copied; in the other one every block is."""
    value = values((3000, 1500), np.float32)
    copied: list[int] = []
    monkeypatch.setattr(LeafDigest, "_gathered", lambda self, part: copied.append(part.size) or part.copy())
    digest_text(value if not order else np.asfortranarray(value), order)
    assert copied == []
    digest_text(np.asfortranarray(value) if not order else value, order)
    assert sum(copied) == value.size


def test_the_digest_is_pinned() -> None:
    """Seals are read for ever: these texts may never change."""
    small, large = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(900_000, dtype=np.float64)
    assert digest_text(small) == "float32[3,4] blocks b67162bb60f4c41a14e46194a57b4872"
    assert digest_text(small, (1, 0)) == PINNED["transposed"]
    assert digest_text(large.reshape(900, 1000)) == PINNED["matrix"]
    assert digest_text(large) == PINNED["vector"]
    assert digest_text(large.reshape(2, 450, 10, 100), (2, 3, 1, 0)) == PINNED["four axes"]
    assert digest_text(np.zeros((), np.int64)) == PINNED["no axes"]
    assert digest_text(np.zeros((3, 0), np.float32)) == PINNED["no elements"]


PINNED = {
    "transposed": "float32[3,4]@1,0 blocks bd9e475a76678dc1e864f93d4dc2e88f",
    "matrix": "float64[900,1000] blocks 117625744274582440ed371a04c9f989",
    "vector": "float64[900000] blocks b8635fb8e1ce6e1c83475521fe30512c",
    "four axes": "float64[2,450,10,100]@2,3,1,0 blocks 9a9978787c8002b31dd1f65fb4dd98b1",
    "no axes": "int64[] blocks 5ebcbe69ee866b6a66266813a586ddc8",
    "no elements": "float32[3,0] blocks 99aa06d3014798d86001c324468d497f",
}


# Pieces: any partition, any order of arrival, any distribution over processes.


@st.composite
def divided(draw: Any) -> tuple[Any, tuple[int, ...], list[Box]]:
    """Draw an array, an order of its axes and a partition of it into boxes, in any order."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    order = tuple(draw(st.permutations(range(len(shape)))))
    boxes: list[Box] = [tuple((0, n) for n in shape)]
    for _ in range(draw(st.integers(0, 12)) if shape else 0):
        number = draw(st.integers(0, len(boxes) - 1))
        axis = draw(st.integers(0, len(shape) - 1))
        low, high = boxes[number][axis]
        cut = draw(st.integers(low, high))
        box = boxes.pop(number)
        boxes += [(*box[:axis], (low, cut), *box[axis + 1 :]), (*box[:axis], (cut, high), *box[axis + 1 :])]
    dtype = draw(st.sampled_from(DTYPES))
    return values(shape, dtype), draw(st.sampled_from([(), order])), draw(st.permutations(boxes))


@pytest.mark.takes_seconds
@given(divided(), st.data())
@quick(100)
@small_blocks()
def test_pieces_in_any_order_and_any_process_give_the_digest_of_the_whole(case: Any, data: Any) -> None:
    value, order, boxes = case
    leaves = [LeafDigest(value.shape, value.dtype, order) for _ in range(data.draw(st.integers(1, 4)))]
    for box in boxes:
        start, piece = placed(value, box)
        held = data.draw(st.sampled_from([piece, piece.copy(order="F"), piece.copy()]))
        leaves[data.draw(st.integers(0, len(leaves) - 1))].add(start, held)
    first, *others = data.draw(st.permutations(leaves))
    for other in others:
        sent = json.loads(json.dumps(other.packed())) if data.draw(st.booleans()) else other.packed()
        first.merge(LeafDigest.unpacked(sent))
    assert first.text() == digest_text(value, order) == reference(value, order)
    assert first._parts == {}, "nothing is kept of complete blocks"


@pytest.mark.takes_seconds
@given(divided(), st.data())
@quick(100)
@small_blocks()
def test_a_piece_that_is_missing_comes_twice_lies_elsewhere_or_is_damaged_is_noticed(case: Any, data: Any) -> None:
    value, order, boxes = case
    boxes = [box for box in boxes if all(low < high for low, high in box)]
    if not boxes:
        return
    number = data.draw(st.integers(0, len(boxes) - 1))
    fault = data.draw(st.sampled_from(["missing", "twice", "elsewhere", "one bit"]))
    leaves = [LeafDigest(value.shape, value.dtype, order) for _ in range(2)]

    def add(which: int, start: list[int], piece: Any) -> None:
        leaves[which].add(start, piece)

    def run() -> str:
        for i, box in enumerate(boxes):
            start, piece = placed(value, box)
            which = data.draw(st.integers(0, 1))
            if i == number and fault == "missing":
                continue
            if i == number and fault == "one bit":
                piece = piece.copy()
                raw = piece.reshape(-1).view(np.uint8)
                raw[data.draw(st.integers(0, raw.size - 1))] ^= 1
            if i == number and fault == "elsewhere":
                start = [data.draw(st.integers(0, n)) for n in value.shape]
                if start == [low for low, _ in box]:
                    raise ValueError("the same place, by chance")
            add(which, start, piece)
            if i == number and fault == "twice":
                add(data.draw(st.integers(0, 1)), start, piece)
        leaves[0].merge(leaves[1])
        return leaves[0].text()

    if fault == "one bit":
        assert run() != digest_text(value, order)
        return
    with pytest.raises(ValueError, match=r"missing|twice|inside|by chance"):
        run()


@small_blocks()
def test_shards_along_the_fast_axis_are_completed_by_owners_none_of_whom_holds_the_array() -> None:
    value, count = values((64, 64), np.float32), 4
    shards = [LeafDigest(value.shape, value.dtype) for _ in range(count)]
    for number, shard in enumerate(shards):
        columns = slice(number * 2, number * 2 + 2)
        for low in range(0, 64, 8):
            shard.add((0, low + columns.start), value[:, low + columns.start : low + columns.stop])
    owners = [LeafDigest(value.shape, value.dtype) for _ in range(count)]
    most = 0
    for number, owner in enumerate(owners):
        for shard in shards:
            owner.merge(LeafDigest.unpacked(shard.packed(number, count)))
            most = max(most, sum(part.values.size for part in owner._parts.values()))
        assert owner._parts == {}
    assert 0 < most <= value.size // count
    first, *others = owners
    for other in others:
        first.merge(other)
    assert first.text() == digest_text(value)


# What is refused.


@pytest.mark.parametrize(
    ("start", "piece", "message"),
    [
        ((0, 0), np.zeros((3, 4), np.float64), "a piece of float64 was added to an array of float32"),
        ((0, 0), np.zeros(4, np.float32), "not inside an array of shape"),
        ((0,), np.zeros((3, 4), np.float32), "not inside an array of shape"),
        ((1, 0), np.zeros((3, 4), np.float32), "not inside an array of shape"),
        ((-1, 0), np.zeros((1, 4), np.float32), "not inside an array of shape"),
    ],
)
def test_what_cannot_be_a_piece_is_refused(start: Any, piece: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LeafDigest((3, 4), "float32").add(start, piece)


@pytest.mark.parametrize("other", [((4, 3), "float32", ()), ((3, 4), "int32", ()), ((3, 4), "float32", (1, 0))])
def test_pieces_of_another_array_are_not_merged(other: Any) -> None:
    with pytest.raises(ValueError, match="were merged into"):
        LeafDigest((3, 4), "float32").merge(LeafDigest(*other))


@pytest.mark.parametrize("order", [(0,), (0, 0), (1, 2)])
def test_an_order_that_is_none_of_the_axes_is_refused(order: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="are not the axes of an array"):
        LeafDigest((3, 4), "float32", order)


def test_bytes_of_a_type_that_numpy_does_not_know_are_digested_under_its_name() -> None:
    value = values((7, 5), ml_dtypes.bfloat16)
    leaf = LeafDigest((7, 5), "bfloat16")
    leaf.add((0, 0), value.view("V2"))
    assert leaf.text() == digest_text(value)


@small_blocks()
def test_only_the_bytes_of_incomplete_blocks_are_kept() -> None:
    value = values((40, 8), np.float32)
    leaf = LeafDigest(value.shape, value.dtype)
    rows = block_shape(value.shape)[0]
    for row in range(len(value)):
        leaf.add((row, 0), value[row : row + 1])
        kept = sum(part.values.size for part in leaf._parts.values())
        assert kept <= rows * 8
        assert (kept == 0) == ((row + 1) % rows == 0)
    assert leaf.text() == reference(value)
