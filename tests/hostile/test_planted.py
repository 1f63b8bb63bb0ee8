"""The catalogue has teeth: with a guard taken away, what it guards against happens, and is seen."""

import os
import shutil
import subprocess
import zipfile

import pytest
import torch

import jax_side.formats.items as jax_items
import parity.checkpoints.saving as saving
import torch_side.formats.content as torch_content
from parity import sides
from parity.checkpoints import FILE
from parity.errors import CheckpointError
from parity.formats import files_of, place_of
from tests.hostile import archives, pickles, worker
from tests.hostile.runs import NEWEST, SPEC, reseal
from tests.hostile.test_catalogue import MEMORY, complaints
from tests.support.small import state_of
from torch_side.formats import archive


def restored(side, run):
    """Restore the newest checkpoint; return the digests of the trainer's leaves."""
    trainer = sides.load(side).build(SPEC, run.run)
    try:
        trainer.restore(NEWEST)
        return state_of(trainer)
    finally:
        trainer.close()


def unsafely(monkeypatch):
    """Let PyTorch unpickle whatever it is given."""
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: load(*args, **{**kwargs, "weights_only": False}))


def unlooked_at(monkeypatch):
    """Let the pickle reach PyTorch without a look at it."""
    monkeypatch.setattr(archive, "require_plain_pickle", lambda *args: None)


SHELL = {"global-reduce", "stack-global", "inst", "obj", "eval", "exec", "getattr-chain", "protocol-0", "protocol-5"}


@pytest.mark.parametrize("name", sorted(SHELL))
def test_without_both_guards_of_pickles_the_code_runs(name, box, monkeypatch):
    """One guard is enough, so the canary is touched only when neither the look nor `weights_only` is there."""
    run = box("torch")
    pickles.replace_pickle(run, pickles.CODE[name](f"touch {run.canary}"))
    reseal(run.newest)
    for plant in (unlooked_at, unsafely):
        with monkeypatch.context() as patch:
            plant(patch)
            with pytest.raises(CheckpointError, match=r"state\.pt"):
                restored("torch", run)
            assert not run.canary.exists(), f"{plant.__name__} alone"
    unlooked_at(monkeypatch)
    unsafely(monkeypatch)
    with pytest.raises(CheckpointError, match=r"state\.pt|does not fit"):
        restored("torch", run)
    assert run.canary.exists()


def test_without_the_look_at_the_archive_the_bomb_goes_off(box, monkeypatch):
    """512 MiB out of half a MiB: a measurement of memory that could not see it would prove nothing."""
    run = box("torch")
    archives.REFUSED["compressed-bomb"](run)
    reseal(run.newest)
    assert grown(run) < MEMORY
    monkeypatch.setattr(torch_content, "read_records", lambda *_: None)
    assert grown(run) > MEMORY


def grown(run):
    """Return by how many bytes a refused restore let this process grow."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    start = worker.status("VmRSS")
    with pytest.raises(CheckpointError, match=r"state\.pt"):
        restored("torch", run)
    return worker.status("VmHWM") - start


def test_the_two_readers_of_an_archive_see_two_directories(box):
    """What the second directory is for: Python's reader and PyTorch's disagree about one file."""
    run = box("torch")
    archives.REFUSED["second-directory-in-a-record"](run)
    path = run.newest / pickles.STATE
    with zipfile.ZipFile(path) as archived:
        name = archived.namelist()[0].partition("/")[0]
        with archived.open(f"{name}/data/0") as record:
            record._expected_crc = None  # a save has none
            seen = record.read()
    used = torch._C.PyTorchFileReader(str(path)).get_record("data/0")
    assert any(seen)
    assert not any(used)
    assert len(seen) == len(used)


def linked_outside(run):
    """Put the data of a store outside and a link in its place, without a seal that would tell."""
    shutil.move(run.newest / "params" / "d", run.outside / "d")
    (run.newest / "params" / "d").symlink_to(run.outside / "d")
    (run.newest / FILE).unlink()


def test_without_both_guards_of_paths_a_store_is_read_from_outside(box, monkeypatch):
    """The listing refuses links, and the walk of the tree whatever leads out of the store; each is enough."""
    run = box("jax")
    linked_outside(run)
    plants = {
        "walk": (jax_items, "locate", lambda store: {}),
        "listing": (saving, "list_files", lambda path: {}),
    }
    for plant in plants.values():
        with monkeypatch.context() as patch:
            patch.setattr(*plant)
            with pytest.raises(CheckpointError, match=r"is a link|outside|no file inside"):
                restored("jax", run)
    for plant in plants.values():
        monkeypatch.setattr(*plant)
    assert restored("jax", run) == restored("jax", box("jax")), "the state came from outside"


def test_the_walk_refuses_what_tensorstore_itself_would_try_to_open(box):
    """TensorStore 0.1.86 refuses the dots on its own; nothing rests on that."""
    store = box("jax").newest / "params"
    with pytest.raises(CheckpointError, match="outside of itself"):
        place_of(store, "btreenode::../../x:0:1", files_of(store))
    with pytest.raises(CheckpointError, match="outside of itself"):
        place_of(store, "btreenode:../..%2F:x:0:1", files_of(store))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"canary": True}, "canary"),
        ({"events": ["os.system"]}, "did what no restore does"),
        ({"grown": 1 << 30}, "grew by 1024 MiB"),
        ({"changed": ["rng"]}, "changed"),
        ({"ours": False}, "raised"),
        ({"message": "no"}, "names nothing like"),
        ({"length": 10**6}, "says 1000000"),
        ({"printable": False}, "cannot be printed"),
        ({"chain": ["MemoryError: "]}, "asked for memory"),
        ({"error": None}, "was accepted"),
        ({"whole": False}, "was not sealed well"),
        ({"met": False, "ended": -11}, "ended the process"),
    ],
)
def test_each_way_to_fail_is_complained_about(change, complaint):
    """Planted into what a refused entry reports, one at a time."""
    fine = {"met": True, "canary": False, "events": [], "grown": 0, "changed": [], "differs": [], "ours": True}
    fine |= {"error": "CheckpointError", "message": "state.pt", "length": 8, "printable": True, "chain": []}
    fine |= {"whole": True, "foreign": False, "damaged": False, "faults": []}
    entry = pickles.ENTRIES[0]
    assert complaints(entry, fine) == []
    found = complaints(entry, fine | change)
    assert len(found) == 1
    assert found[0].startswith(complaint) or complaint in found[0]


def test_the_watch_sees_what_is_done_beside_the_run(box):
    """Planted: a restore that runs a command, and one that looks beside the run."""
    run = box("torch")
    watch = worker.Watch()
    watch.box = run
    os.listdir(run.outside)
    (run.run / "fine").touch()
    run.canary.touch()
    subprocess.run(["true"], check=True)
    watch.box = None
    os.listdir(run.outside)
    assert [event.split()[0] for event in watch.seen][:3] == ["os.listdir", "open", "subprocess.Popen"]
