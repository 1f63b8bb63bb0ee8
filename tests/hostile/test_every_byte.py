"""One bit of every byte of a checkpoint, flipped: each is found, in the right file and blamed on the right leaves."""

import os
import random
import re
import sys

import pytest

from parity import sides
from parity.checkpoints import FILE, read_seal, verify
from parity.errors import CheckpointError
from tests.hostile.runs import META, NEWEST, SPEC
from tests.support.small import state_of

SIDES = ("torch", "jax")


def files_of(checkpoint):
    return sorted(p.relative_to(checkpoint).as_posix() for p in checkpoint.rglob("*") if p.is_file())


def flips(checkpoint, name, draw):
    """Flip a bit of every byte in turn; yield the offset while it is flipped."""
    data = (checkpoint / name).read_bytes()
    handle = os.open(checkpoint / name, os.O_RDWR)
    try:
        for offset, value in enumerate(data):
            os.pwrite(handle, bytes([value ^ 1 << draw.randrange(8)]), offset)
            yield offset
            os.pwrite(handle, bytes([value]), offset)
    finally:
        os.close(handle)
    assert (checkpoint / name).read_bytes() == data


def owners(sealed, name, offset):
    """Return the leaves whose bytes hold an offset."""
    return tuple(
        sorted(
            leaf
            for leaf, at in sealed.places.items()
            if any(p.file == name and p.start <= offset < p.start + p.size for p in at)
        )
    )


def blame(checkpoint, names, draw):
    """Flip every byte of some files; return how many, those not found, and those blamed on something else."""
    sealed = read_seal(checkpoint)
    count, silent, wrong = 0, [], []
    for name in names:
        for offset in flips(checkpoint, name, draw):
            count += 1
            found = verify(checkpoint)
            expected = [] if found.whole else [(name, () if name == FILE else owners(sealed, name, offset))]
            if found.whole:
                silent.append((name, offset))
            elif [(fault.file, fault.leaves) for fault in found.faults] != expected:
                wrong.append((name, offset, found.faults))
    assert verify(checkpoint).whole, "every byte was put back"
    return count, silent, wrong


def shares(sizes, parts):
    """Divide files into parts of about the same size: the largest first, each to the part that holds least."""
    held = [[] for _ in range(parts)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        min(held, key=lambda names: sum(sizes[name] for name in names)).append(name)
    return held


@pytest.mark.parametrize(("side", "part", "parts"), [("torch", 0, 1), ("jax", 0, 3), ("jax", 1, 3), ("jax", 2, 3)])
def test_a_flipped_bit_in_any_byte_is_found_and_blamed_on_its_file_and_leaves(side, part, parts, box):
    """In parts of about the same size, which together are every file."""
    checkpoint = box(side, tiny=True).newest
    sizes = {name: (checkpoint / name).stat().st_size for name in files_of(checkpoint)}
    divided = shares(sizes, parts)
    assert sorted(name for names in divided for name in names) == sorted(sizes)
    count, silent, wrong = blame(checkpoint, divided[part], random.Random(20))
    assert silent == []
    assert wrong[:3] == []
    assert count == sum(sizes[name] for name in divided[part]) > 0
    assert sum(sizes.values()) > 10_000


@pytest.mark.parametrize("side", SIDES)
def test_every_array_of_the_state_has_a_place_so_that_damage_can_be_blamed(side, good):
    sealed = read_seal(good(side) / "checkpoints" / str(NEWEST))
    arrays = {leaf for leaf in sealed.leaves if leaf.startswith(("model.", "optimizer.first", "optimizer.second"))}
    assert len(arrays) == 12
    assert arrays <= sealed.places.keys()


@pytest.mark.parametrize("side", SIDES)
def test_a_flipped_bit_never_reaches_a_trainer(side, box):
    """The real restore, for bytes drawn from every file: one error, which names the file, and nothing is changed."""
    run = box(side)
    draw = random.Random(21)
    trainer = sides.load(side).build(SPEC, run.run)
    before = state_of(trainer)
    for name in [name for name in files_of(run.newest) if name != FILE]:
        size = (run.newest / name).stat().st_size
        target = draw.randrange(size)
        for offset in flips(run.newest, name, draw):
            if offset != target:
                continue
            with pytest.raises(
                CheckpointError, match=rf"{re.escape(name)}:? does not hold the bytes that were sealed"
            ):
                trainer.restore(NEWEST)
            assert state_of(trainer) == before
    trainer.restore(NEWEST)
    assert state_of(trainer) == read_seal(run.newest).leaves, "with every byte put back it is restored"
    trainer.close()


@pytest.mark.parametrize("side", SIDES)
def test_without_the_digests_of_the_files_flipped_bits_are_silent(side, box, monkeypatch):
    """Planted: a verification that looks at sizes only finds nothing but the damage of the seal itself."""
    checkpoint = box(side, tiny=True).newest
    sealed = read_seal(checkpoint)
    monkeypatch.setattr(
        sys.modules["parity.checkpoints.verify"],
        "_digest_each",
        lambda path, names: {name: sealed.files[name] for name in names},
    )
    count, silent, _ = blame(checkpoint, [META[side], FILE], random.Random(22))
    assert count > len(silent) == sealed.files[META[side]].size
