"""Files cut short, emptied, gone, grown, torn or exchanged: the right file and leaves are named, every time."""

import os
import shutil
from itertools import combinations

import pytest

from parity.checkpoints import FILE, read_seal, seal, verify
from parity.errors import CheckpointError
from parity.storage import digests as digest
from tests.hostile.runs import NEWEST, OLDER, reseal
from tests.hostile.test_every_byte import SIDES, files_of


@pytest.fixture(params=SIDES)
def checkpoint(request, box):
    return box(request.param).newest


def owners(sealed, name, start, end):
    """Return the leaves that have bytes of a file between two offsets."""
    found = {
        leaf
        for leaf, at in sealed.places.items()
        if any(p.file == name and p.start < end and p.start + p.size > start for p in at)
    }
    return tuple(sorted(found))


def faults(checkpoint):
    return [(fault.file, fault.leaves) for fault in verify(checkpoint).faults]


def everything_put_back(checkpoint, name, data):
    (checkpoint / name).write_bytes(data)
    assert verify(checkpoint).whole


def test_a_file_cut_short_is_named_with_the_leaves_it_lost(checkpoint):
    sealed = read_seal(checkpoint)
    for name in files_of(checkpoint):
        data = (checkpoint / name).read_bytes()
        borders = {p.start for at in sealed.places.values() for p in at if p.file == name and p.start}
        for length in sorted({0, 1, len(data) // 2, len(data) - 1} | borders):
            os.truncate(checkpoint / name, length)
            lost = () if name == FILE else owners(sealed, name, length, len(data))
            assert faults(checkpoint) == [(name, lost)], (name, length)
            everything_put_back(checkpoint, name, data)


@pytest.mark.breaks_first("torch")
def test_a_file_that_lost_its_tail_to_zeros_is_named(checkpoint):
    """What a power loss leaves: the right size, and a part that was never written."""
    sealed = read_seal(checkpoint)
    for name in files_of(checkpoint):
        data = (checkpoint / name).read_bytes()
        half = len(data) // 2
        (checkpoint / name).write_bytes(data[:half] + bytes(len(data) - half))
        [(file, leaves)] = faults(checkpoint)
        assert file == name
        assert set(leaves) <= set(owners(sealed, name, half, len(data)))
        everything_put_back(checkpoint, name, data)


def test_a_deleted_file_is_named_with_every_leaf_of_it(checkpoint):
    sealed = read_seal(checkpoint)
    for name in files_of(checkpoint):
        data = (checkpoint / name).read_bytes()
        (checkpoint / name).unlink()
        assert faults(checkpoint) == [(name, () if name == FILE else owners(sealed, name, 0, len(data)))]
        assert verify(checkpoint).unsealed == (name == FILE)
        everything_put_back(checkpoint, name, data)


def test_a_grown_file_is_named_and_no_leaf_is_blamed(checkpoint):
    for name in files_of(checkpoint):
        data = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(data + b"\0")
        assert faults(checkpoint) == [(name, ())]
        everything_put_back(checkpoint, name, data)


def test_an_additional_file_is_named(checkpoint):
    for name in ("more", "params/d/more", ".hidden"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_bytes(b"")
        assert faults(checkpoint) == [(name, ())]
        (checkpoint / name).unlink()


def test_files_exchanged_with_each_other_are_both_named(checkpoint):
    for a, b in combinations(files_of(checkpoint), 2):
        first, second = ((checkpoint / name).read_bytes() for name in (a, b))
        if first == second:
            continue
        (checkpoint / a).write_bytes(second)
        (checkpoint / b).write_bytes(first)
        named = {file for file, _ in faults(checkpoint)}
        assert named == ({FILE} if FILE in (a, b) else {a, b})
        (checkpoint / a).write_bytes(first)
        everything_put_back(checkpoint, b, second)


def test_a_file_of_another_step_is_named(checkpoint):
    """Every file in turn, of the same name or, in Orbax's data folders, at the same place in the list."""
    older = checkpoint.with_name(str(OLDER))
    pairs = list(zip(files_of(checkpoint), files_of(older), strict=False))
    assert len(pairs) > 2
    for name, other in pairs:
        data, stale = (checkpoint / name).read_bytes(), (older / other).read_bytes()
        if data == stale:
            continue
        (checkpoint / name).write_bytes(stale)
        assert name in [file for file, _ in faults(checkpoint)]
        everything_put_back(checkpoint, name, data)


def test_the_seal_of_another_step_is_refused_by_name(checkpoint):
    shutil.copy(checkpoint.with_name(str(OLDER)) / FILE, checkpoint / FILE)
    found = verify(checkpoint)
    assert (FILE, f"is of step {OLDER}: it belongs to another checkpoint") in [
        (fault.file, fault.problem) for fault in found.faults
    ]
    with pytest.raises(CheckpointError, match=f"its seal is of step {OLDER}"):
        seal.examine(checkpoint)


def test_a_checkpoint_renamed_to_another_step_is_refused_by_name(checkpoint):
    renamed = checkpoint.with_name("6")
    checkpoint.rename(renamed)
    assert [(fault.file, fault.problem) for fault in verify(renamed).faults] == [
        (FILE, f"is of step {NEWEST}: it belongs to another checkpoint")
    ]


def test_blocks_of_a_file_exchanged_or_repeated_are_found(checkpoint, monkeypatch):
    """A file is digested block by block: their order and number count."""
    monkeypatch.setattr(digest, "BLOCK", 1024)
    name = max(read_seal(checkpoint).files.items(), key=lambda item: item[1].size)[0]
    data = (checkpoint / name).read_bytes()
    reseal(checkpoint)
    blocks = [data[i : i + 1024] for i in range(0, len(data), 1024)]
    assert len(blocks) > 2
    for a, b in combinations(range(len(blocks)), 2):
        if blocks[a] == blocks[b] or len(blocks[a]) != len(blocks[b]):
            continue
        exchanged, repeated = list(blocks), list(blocks)
        exchanged[a], exchanged[b] = blocks[b], blocks[a]
        repeated[a] = blocks[b]
        for spoiled in (exchanged, repeated):
            (checkpoint / name).write_bytes(b"".join(spoiled))
            assert faults(checkpoint) == [(name, ())]
    for end in (1024, 2048, len(data) // 1024 * 1024):
        (checkpoint / name).write_bytes(data[:end])
        assert faults(checkpoint) == [(name, ())]
    everything_put_back(checkpoint, name, data)
