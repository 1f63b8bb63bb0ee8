"""Checkpoints cut short, incomplete, mixed or cast are never taken and never loaded in silence; whole ones are."""

import json
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jax_side.formats.items import read_items
from parity import policy, sides
from parity.checkpoints import CheckpointStore, seal
from parity.contract import first_divergence
from parity.errors import CheckpointError, StateError
from parity.reference.planned import run_here
from parity.runs import QUIET, Observers, RunDirectory, train
from parity.spec import load
from tests.faults.fault import BOTH, MLP, Planted
from tests.faults.storage import BEHIND_THE_SEAL, FAULTS, IN_THE_WRITING, edit_file, reseal

SPEC = load(MLP[0], None, [*MLP[1], "validate_every=0"])
STATE = {"torch": "state.pt", "jax": "optimizer/_METADATA"}
BEHIND = [pytest.param(f, side, id=f"{f.id}-{side}") for f in FAULTS if f.id in BEHIND_THE_SEAL for side in f.sides]


class Cut(BaseException):
    """Stands for a kill in the middle of something."""


@pytest.fixture(scope="module", params=BOTH)
def stopped(request, tmp_path_factory):
    """Return a side's name and a run of it stopped behind step 20, with checkpoints of 10 and 20."""
    path = tmp_path_factory.mktemp("storage") / request.param
    train(sides.load(request.param), request.param, replace(SPEC, steps=20), path, observers=QUIET)
    return request.param, path


@pytest.fixture
def run(stopped, tmp_path):
    """Return the side and a copy of the run to spoil."""
    side, path = stopped
    shutil.copytree(path, tmp_path / "run")
    return sides.load(side), side, RunDirectory(tmp_path / "run")


def resume(side, name, run, say=lambda line: None):
    """Go on to step 30; return where from."""
    return train(side, name, replace(SPEC, steps=30), run.path, observers=Observers(log=say)).resumed_from


def test_whole_checkpoints_are_taken(run):
    side, name, directory = run
    assert [s.step for s in directory.store.scan().whole] == [10, 20]
    assert resume(side, name, directory) == 20


@pytest.mark.parametrize("what", ["cut short", "gone", "never renamed"])
def test_partial_is_never_latest(what, run):
    """partial_taken_as_latest: it is reported, and the run goes on from the one before."""
    side, name, directory = run
    newest = directory.checkpoints / "20"
    if what == "never renamed":
        newest.rename(directory.checkpoints / "20.orbax-checkpoint-tmp")
    elif what == "gone" or name == "jax":
        (newest / STATE[name]).unlink()
    else:
        (newest / STATE[name]).write_bytes((newest / STATE[name]).read_bytes()[:-100])
    scan = directory.store.scan()
    assert [s.step for s in scan.whole] == [10]
    assert len(scan.damaged) + len(scan.unfinished) == 1
    assert resume(side, name, directory) == 10


def _a_name_is_enough(monkeypatch):
    """Plant a scan that takes whatever has a seal, without looking at the files."""
    scan = CheckpointStore.scan
    monkeypatch.setattr(CheckpointStore, "scan", lambda self: scan(self, examine=seal.read_seal))


def test_a_scan_that_takes_partial_checkpoints_is_found_by_the_load(run, monkeypatch):
    """partial_taken_as_latest, planted: what the load finds is named, and the run goes on from the one before."""
    side, name, directory = run
    (directory.checkpoints / "20" / STATE[name]).unlink()
    _a_name_is_enough(monkeypatch)
    assert [s.step for s in directory.store.scan().whole] == [10, 20]
    said = []
    assert resume(side, name, directory, say=said.append) == 10
    moved = next(line for line in said if line.startswith("moved checkpoint 20 to abandoned/1: "))
    assert f"{STATE[name]}: is missing" in moved


def test_a_load_that_takes_partial_checkpoints_too_stops_instead_of_starting_from_zero(run, monkeypatch):
    """partial_taken_as_latest, planted twice: neither the scan nor the restore looks at a file."""
    side, name, directory = run
    (directory.checkpoints / "20" / ("state.pt" if name == "torch" else "optimizer/manifest.ocdbt")).unlink()
    _a_name_is_enough(monkeypatch)
    monkeypatch.setattr("parity.checkpoints.saving.require_verified", seal.read_seal)
    with pytest.raises(CheckpointError, match=r"checkpoints/20/(state\.pt|optimizer)"):
        resume(side, name, directory)
    assert {entry.name for entry in directory.checkpoints.iterdir()} == {"10", "20"}


def test_a_missing_piece_is_an_error(run):
    """missing_piece_defaults: every file of an item must be there."""
    _, name, directory = run
    newest = directory.checkpoints / "20"
    if name == "jax":
        shutil.rmtree(newest / "optimizer")
    else:
        (newest / "state.pt").unlink()
    with pytest.raises(CheckpointError, match=r"optimizer/\S+ is missing|state\.pt is missing"):
        seal.examine(newest)


def test_a_missing_piece_that_was_sealed_stops_the_load(run):
    """missing_piece_defaults: a saver that forgets a piece seals the rest; no start value stands in for it."""
    side, name, directory = run
    newest = directory.checkpoints / "20"
    if name == "jax":
        shutil.rmtree(newest / "optimizer")
    else:
        edit_file(newest, lambda saved: saved.pop("rng"))
    reseal(newest)
    assert [s.step for s in directory.store.scan().whole] == [10, 20]
    with pytest.raises(
        CheckpointError,
        match=r"20/optimizer(/\S+ cannot be read| holds no)|step 20 does not fit .*rng",
    ):
        resume(side, name, directory)
    assert {entry.name for entry in directory.checkpoints.iterdir()} == {"10", "20"}


@pytest.mark.parametrize(("fault", "side"), BEHIND)
def test_what_was_changed_behind_its_seal_is_refused_named_and_moved_aside(fault, side, tmp_path, monkeypatch):
    """Pieces of other steps, and missing ones: each restart goes on from the checkpoint before, bit for bit."""
    plant, piece = BEHIND_THE_SEAL[fault.id]
    said = []
    monkeypatch.setattr("parity.reference.planned.drive.QUIET", Observers(log=said.append))
    reference, resumed, expected = run_here(
        fault.spec, Planted(side), tmp_path, fault.kills, resuming=Planted(side, plant)
    )
    assert expected == [None, 20, 30], "the kill left them whole"
    assert resumed.resumed_from == [None, 10, 20]
    assert first_divergence(reference.curve, resumed.curve) is None
    for attempt, step in ((1, 20), (2, 30)):
        assert (tmp_path / "resumed" / "abandoned" / str(attempt) / str(step)).is_dir()
        moved = next(line for line in said if line.startswith(f"moved checkpoint {step} to abandoned/{attempt}: "))
        assert f"{piece}/" in moved if side == "jax" else "state.pt" in moved


@pytest.mark.parametrize(("fault", "side"), [case for case in BEHIND if case.values[0].id in IN_THE_WRITING])
def test_a_piece_that_was_not_in_memory_when_its_checkpoint_was_sealed_stops_the_load(fault, side, tmp_path):
    """Every byte is as it was sealed, and the leaves are not."""
    plant, leaf = IN_THE_WRITING[fault.id]
    with pytest.raises(CheckpointError, match=rf"what was loaded of step 20 is not what was sealed:\n  {leaf}"):
        run_here(fault.spec, Planted(side), tmp_path, fault.kills, resuming=Planted(side, plant))
    names = {entry.name for entry in (tmp_path / "resumed" / "checkpoints").iterdir()}
    assert names == {"10", "20"}, "nothing is moved"


def test_a_piece_that_the_load_does_not_bind_is_missed_before_the_first_step(tmp_path, monkeypatch):
    """opt_replace_discarded, inside the load: what the seal says of the optimizer is not what a new trainer has."""
    trainer = sides.load("jax").build(SPEC, tmp_path)
    list(trainer.steps(5))
    trainer.save(None)
    trainer.close()
    trainer = sides.load("jax").build(SPEC, tmp_path, attempt=1)
    template = trainer.state.optimizer

    def forgetful(*args, **options):
        return read_items(*args, **options) | {"optimizer": template}

    monkeypatch.setattr("jax_side.checkpoint.read_items", forgetful)
    with pytest.raises(CheckpointError, match=r"of step 5 is not what was sealed:\n  optimizer\.first_moment"):
        trainer.restore("latest")
    assert trainer.step == 0
    trainer.close()


def test_a_position_of_another_batch_size_is_refused(run):
    """batch_size_changed_offset: an offset in batches means nothing there; the position of this run fits."""
    side, _, directory = run
    trainer = side.build(SPEC, directory.path, attempt=1)
    trainer.restore("latest")
    position = trainer.feed.position
    trainer.feed.seek(position)
    with pytest.raises(StateError, match=r"data\.position: .*does not fit 12 batches of 128"):
        trainer.feed.seek({**position, "batch_size": 64, "samples": position["samples"] // 2})
    trainer.close()


def _cut_saves(order):
    """Return a plant that saves in a wrong order and is killed in the middle of the second save."""

    def plant(trainer):
        save, store = trainer.save, trainer.checkpoints.store

        def save_wrongly(metric):
            if trainer.step == 20:
                trainer.wait()
                store.point = lambda scan, plan, keep=None: None  # what is killed corrects no pointer
                order(store, trainer.step)
                raise Cut
            save(metric)

        trainer.save = save_wrongly

    return plant


def _prune_first(store, step):
    for entry in list(store.path.iterdir()):
        shutil.rmtree(entry)


def _point_first(store, step):
    (store.home / "latest.json").write_text(json.dumps({"step": step, "path": f"checkpoints/{step}"}))


def _kill_in_save(name, order, path):
    side = Planted(name, _cut_saves(order))
    with pytest.raises(Cut):
        train(side, name, SPEC, path, observers=QUIET)
    run = RunDirectory(path)
    pointed = json.loads((run.path / "latest.json").read_text())["step"]
    return [s.step for s in run.store.scan().whole], pointed


@pytest.mark.parametrize("name", BOTH)
def test_a_kill_in_a_save_leaves_the_one_before(name, tmp_path):
    whole, pointed = _kill_in_save(name, lambda run, step: None, tmp_path)
    assert whole == [10]
    assert pointed == 10


@pytest.mark.parametrize("name", BOTH)
def test_pruning_before_the_save_leaves_nothing(name, tmp_path):
    """retention_before_finalize, planted."""
    assert _kill_in_save(name, _prune_first, tmp_path)[0] == []


@pytest.mark.parametrize("name", BOTH)
def test_a_pointer_before_the_data_misleads_only_its_reader(name, tmp_path):
    """latest_before_durable, planted: the pointer is wrong, and no resume reads it."""
    whole, pointed = _kill_in_save(name, _point_first, tmp_path)
    assert (whole, pointed) == ([10], 20)
    assert resume(sides.load(name), name, RunDirectory(tmp_path)) == 10


def _restored_as_float(trainer):
    """Restore into a template whose step counter is of another dtype."""
    adam = trainer.state.optimizer["adam"]
    optimizer = {**trainer.state.optimizer, "adam": adam._replace(count=adam.count.astype(jnp.float32))}
    template = trainer.state._replace(optimizer=optimizer)
    return trainer.checkpoints.restore("latest", template)[1].optimizer["adam"].count


def test_restore_casts_silently_is_refused(tmp_path, monkeypatch):
    """A counter of 2**24 + 1 comes back as it was, or not at all; Orbax alone makes 2**24 of it."""
    trainer = sides.load("jax").build(SPEC, tmp_path)
    adam = trainer.state.optimizer["adam"]._replace(count=jnp.int32(2**24 + 1))
    trainer.state = trainer.state._replace(optimizer={**trainer.state.optimizer, "adam": adam})
    trainer.save(None)
    trainer.wait()
    assert int(trainer.checkpoints.restore("latest", trainer.state)[1].optimizer["adam"].count) == 2**24 + 1
    with pytest.raises(CheckpointError, match=r"optimizer\.adam\.count: expected float32\[\], found int32\[\]"):
        _restored_as_float(trainer)
    monkeypatch.setattr("jax_side.formats.items.check_types", lambda item, expected: None)
    monkeypatch.setattr("jax_side.checkpoint.require_leaves", lambda seal, found: None)
    monkeypatch.setattr("jax_side.formats.whole.LEAST", 1 << 60)  # Orbax reads all
    assert int(_restored_as_float(trainer)) == 2**24, "without both checks, one count is lost"
    trainer.close()


def _shardings(trainer):
    return {leaf.sharding for leaf in jax.tree.leaves(trainer.state)}


def test_restored_arrays_lie_on_the_devices_of_this_run(tmp_path):
    """sharding_from_file: a checkpoint of one device, restored on two; the file's own sharding would leave one."""
    one, two = (load(MLP[0], None, [*MLP[1], f"mesh.data={n}"]) for n in (1, 2))
    first = sides.load("jax").build(one, tmp_path)
    first.save(None)
    first.close()
    trainer = sides.load("jax").build(two, tmp_path)
    trainer.restore("latest")
    assert _shardings(trainer) == {trainer.placement.replicated}
    trainer.state = first.placement.put(trainer.state)
    assert _shardings(trainer) != {trainer.placement.replicated}
    with pytest.raises(ValueError, match="incompatible devices"):
        list(trainer.steps(1))
    trainer.close()


def test_newest_is_by_number_not_by_text():
    """int_keys_become_str, of steps: "9" sorts behind "10"."""
    saved = [policy.Saved(step=step, metric=None) for step in (9, 10, 100)]
    assert policy.latest(saved).step == 100
    assert max(saved, key=lambda s: str(s.step)).step == 9
