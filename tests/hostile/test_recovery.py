"""A run whose newest checkpoint is damaged goes on from the one before, and says what, why and how much it lost."""

import os
import re
import shutil

import pytest

from parity import sides
from parity.checkpoints import FILE, read_seal, verify
from parity.errors import CheckpointError, OtherRunError
from parity.runs import QUIET, Observers, ProcessOptions, RunDirectory, resume_run, train
from parity.spec import override
from tests.hostile.runs import META, NEWEST, OLDER, SPEC, longer, make_run, reseal
from tests.hostile.test_every_byte import SIDES, files_of
from tests.support.small import state_of

WEIGHT = "model.params.layers.0.weight"


def flip(box, side):
    data = bytearray((box.newest / META[side]).read_bytes())
    data[len(data) // 2] ^= 4
    (box.newest / META[side]).write_bytes(data)
    return f"{META[side]}:? does not hold the bytes that were sealed"


def flip_a_weight(box, side):
    """Let the message name the leaf."""
    place = read_seal(box.newest).places[WEIGHT][-1]
    data = bytearray((box.newest / place.file).read_bytes())
    data[place.start] ^= 4
    (box.newest / place.file).write_bytes(data)
    return f"{place.file}:? does not hold the bytes that were sealed .*{WEIGHT}"


def flip_the_seal(box, side):
    data = bytearray((box.newest / FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (box.newest / FILE).write_bytes(data)
    return f"{FILE} (was changed|is not a seal|cannot be read)"


def cut(box, side):
    os.truncate(box.newest / META[side], 7)
    return f"{META[side]}:? has 7 bytes, was sealed with"


def empty(box, side):
    os.truncate(box.newest / META[side], 0)
    return f"{META[side]}:? has 0 bytes, was sealed with"


def empty_the_seal(box, side):
    os.truncate(box.newest / FILE, 0)
    return f"{FILE} cannot be read"


def grow(box, side):
    with (box.newest / META[side]).open("ab") as file:
        file.write(b"\n")
    return f"{META[side]}:? has [0-9]+ bytes, was sealed with"


def delete(box, side):
    (box.newest / META[side]).unlink()
    return f"{META[side]}:? is missing"


def add(box, side):
    (box.newest / "more").write_bytes(b"")
    return "more:? is not in the seal"


def take_the_older_file(box, side):
    shutil.copy(box.older / META[side], box.newest / META[side])
    return f"{META[side]}:?( does not hold the bytes that were sealed| has [0-9]+ bytes)"


def take_the_older_seal(box, side):
    shutil.copy(box.older / FILE, box.newest / FILE)
    return f"(its seal|{FILE}:) is of step {OLDER}"


def link(box, side):
    (box.newest / META[side]).rename(box.outside / "file")
    (box.newest / META[side]).symlink_to(box.outside / "file")
    return f"{META[side]} is a link"


DAMAGES = (
    flip,
    flip_a_weight,
    flip_the_seal,
    cut,
    empty,
    empty_the_seal,
    grow,
    delete,
    add,
    take_the_older_file,
    take_the_older_seal,
    link,
)


def contents(checkpoint):
    return {name: (checkpoint / name).read_bytes() for name in files_of(checkpoint)}


def resume(side, box):
    """Resume in this process; return the step, what was said, and the digests of the trainer's leaves."""
    said = []
    trainer = sides.load(side).build(SPEC, box.run, attempt=1)
    step = resume_run(RunDirectory(box.run), trainer, "auto", 1, said.append)
    leaves = state_of(trainer)
    trainer.close()
    return step, said, leaves


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_older_checkpoint_is_taken_and_the_damaged_one_moved_aside_whole(damage, side, box):
    run = box(side)
    why = damage(run, side)
    damaged = contents(run.newest)
    step, said, leaves = resume(side, run)
    assert step == OLDER
    assert leaves == read_seal(run.older).leaves
    assert contents(run.run / "abandoned" / "1" / str(NEWEST)) == damaged, "moved, and not a byte of it changed"
    assert not run.newest.exists()
    told = "\n".join(said)
    assert re.search(f"moved checkpoint {NEWEST} to abandoned/1: .*{why}", told, re.DOTALL), told
    assert f"{NEWEST - OLDER} steps are lost with it and trained again" in said
    assert said[-1] == f"resumed from step {OLDER} (latest)"


@pytest.mark.parametrize("side", SIDES)
def test_a_renamed_checkpoint_does_not_count_and_the_older_one_is_taken(side, box):
    run = box(side)
    run.newest.rename(run.newest.with_name("60"))
    step, said, _ = resume(side, run)
    assert step == OLDER
    assert re.search(f"moved checkpoint 60 to abandoned/1: .*is of step {NEWEST}", "\n".join(said))
    assert contents(run.run / "abandoned" / "1" / "60")


@pytest.mark.parametrize("side", SIDES)
def test_damage_of_the_older_checkpoint_does_not_keep_the_newest_from_being_restored(side, box):
    """Whatever a neighbour holds, whole by its size or not."""
    run = box(side)
    for name in files_of(run.older):
        if name != FILE:
            size = (run.older / name).stat().st_size
            (run.older / name).write_bytes(b"[]" + b" " * (size - 2) if size > 1 else b"x")
    step, _, leaves = resume(side, run)
    assert step == NEWEST
    assert leaves == read_seal(run.newest).leaves


@pytest.mark.parametrize("side", SIDES)
def test_a_neighbour_that_is_sealed_over_garbage_does_no_harm_to_restoring_nor_to_saving(side, box):
    run = box(side)
    for name in files_of(run.older):
        if name != FILE:
            (run.older / name).write_bytes(b"[]")
    reseal(run.older)
    said = []
    train(sides.load(side), side, longer(6), run.run, observers=Observers(log=said.append))
    assert f"resumed from step {NEWEST} (latest)" in said
    assert verify(run.run / "checkpoints" / "6").whole


@pytest.mark.parametrize("side", SIDES)
def test_with_every_checkpoint_damaged_the_run_stops_and_leaves_them_where_they_are(side, box):
    run = box(side)
    for checkpoint in (run.older, run.newest):
        (checkpoint / META[side]).write_bytes(b"")
    before = {name: contents(run.run / "checkpoints" / name) for name in (str(OLDER), str(NEWEST))}
    with pytest.raises(CheckpointError, match=f"starting over would hide the loss(.|\n)*{META[side]}:? has 0 bytes"):
        resume(side, run)
    assert {name: contents(run.run / "checkpoints" / name) for name in before} == before
    assert not (run.run / "abandoned").exists()


@pytest.mark.parametrize("side", SIDES)
def test_every_checkpoint_flipped_stops_the_run_with_one_error(side, box):
    """Sizes fit, so each is found out only when it is read."""
    run = box(side)
    for checkpoint in (run.older, run.newest):
        data = bytearray((checkpoint / META[side]).read_bytes())
        data[0] ^= 1
        (checkpoint / META[side]).write_bytes(data)
    with pytest.raises(CheckpointError, match=r"no whole .*checkpoint(.|\n)*sealed") as caught:
        resume(side, run)
    assert sorted(name for name, _ in caught.value.found) == [str(OLDER), str(NEWEST)]
    assert run.older.exists()
    assert run.newest.exists()


@pytest.mark.parametrize("side", SIDES)
def test_the_run_trained_again_after_the_damage_ends_where_the_undamaged_one_does(side, box):
    damaged, whole = box(side), box(side)
    flip(damaged, side)
    said = []
    for run in (damaged, whole):
        train(sides.load(side), side, longer(6), run.run, observers=Observers(log=said.append))
    ends = [read_seal(run.run / "checkpoints" / "6").leaves for run in (damaged, whole)]
    assert ends[0] == ends[1]
    assert f"resumed from step {OLDER} (latest)" in said
    assert f"resumed from step {NEWEST} (latest)" in said


OTHERS = {"seed": ["seed=8"], "model": ["model.hidden=[5]"], "optimizer": ["optimizer.kind=sgd"]}
"""What another run differs in; the shapes of the second are other ones too."""


def put_another_run_s(box, side, overrides):
    """Replace the newest checkpoint by the whole one of another run; return that run's."""
    other = make_run(side, box.root / "other", override(SPEC, overrides)) / "checkpoints" / str(NEWEST)
    shutil.rmtree(box.newest)
    shutil.copytree(other, box.newest)
    assert verify(box.newest).whole
    return other


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("what", OTHERS)
def test_a_whole_checkpoint_of_another_run_is_moved_aside_like_a_damaged_one(what, side, box):
    damaged, whole = box(side), box(side)
    other = put_another_run_s(damaged, side, OTHERS[what])
    said = []
    for run in (damaged, whole):
        train(sides.load(side), side, longer(6), run.run, observers=Observers(log=said.append))
    assert contents(damaged.run / "abandoned" / "1" / str(NEWEST)) == contents(other)
    ends = [read_seal(run.run / "checkpoints" / "6").leaves for run in (damaged, whole)]
    assert ends[0] == ends[1]
    (told,) = [line for line in said if line.startswith(f"moved checkpoint {NEWEST} to abandoned/1: ")]
    assert "is of another run (other model, data, optimizer or seed)" in told
    assert read_seal(other).spec_hash[:12] in told
    assert f"{NEWEST - OLDER} steps are lost with it and trained again" in said
    assert f"resumed from step {OLDER} (latest)" in said


@pytest.mark.parametrize("side", SIDES)
def test_a_checkpoint_of_another_run_that_is_asked_for_is_an_error_and_stays_where_it_is(side, box):
    run = box(side)
    other = put_another_run_s(run, side, OTHERS["seed"])
    with pytest.raises(OtherRunError, match=f"step {NEWEST} is of another run"):
        train(sides.load(side), side, longer(6), run.run, options=ProcessOptions(resume=NEWEST), observers=QUIET)
    assert contents(run.newest) == contents(other)
    assert not (run.run / "abandoned").exists()


@pytest.mark.parametrize("side", SIDES)
def test_with_every_checkpoint_of_another_run_the_run_stops_and_leaves_them_where_they_are(side, box):
    run = box(side)
    put_another_run_s(run, side, OTHERS["seed"])
    shutil.rmtree(run.older)
    with pytest.raises(CheckpointError, match=rf"no whole .*\n  {NEWEST}: step {NEWEST} is of another run"):
        resume(side, run)
    assert run.newest.exists()
    assert not (run.run / "abandoned").exists()
