"""The saves that the twin's are judged by: as many bytes, files and fsyncs, and the same state."""

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import saves_beside, slowdown
from benchmarks.saves_beside import OrbaxSaves, RawSaves, TorchSaves
from benchmarks.saving import build, steps
from parity.storage import list_files

each_side = pytest.mark.parametrize("side", ["torch", "jax"])
TINY = 20_000


@contextlib.contextmanager
def fsyncs(monkeypatch):
    """Note the kind of everything that is fsynced; the names differ from save to save."""
    seen, real = [], os.fsync

    def fsync(handle):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        seen.append("directory" if path.is_dir() else "file")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield seen


def second_save(trainer, saves, home, monkeypatch):
    """Save twice, as each but the first follows another; return the files of the second and what was fsynced."""
    saves.save()
    steps(trainer, 1)
    saves.wait()
    with fsyncs(monkeypatch) as seen:
        saves.save()
        saves.wait()
    (kept,) = (home / "checkpoints").iterdir()
    assert int(kept.name) == trainer.step
    assert (home / "latest.json").is_file()
    return list_files(kept), sorted(seen)


def assert_same_writes(side, home, monkeypatch):
    """Fail unless a raw save writes and fsyncs what the save of the twin does that it was made by."""
    trainer = build(side, TINY, home / "run")
    own = slowdown.OwnSaves(trainer, home / "run")
    files, fsynced = second_save(trainer, own, home / "run", monkeypatch)  # TensorStore's number of files varies
    own.remove()
    raw = RawSaves(side, trainer, files, home / "raw")
    assert second_save(trainer, raw, home / "raw", monkeypatch) == (files, fsynced)
    assert fsynced.count("file") >= len(files)
    raw.remove()
    assert not (home / "raw").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
@each_side
def test_a_raw_save_writes_as_many_bytes_and_files_with_as_many_fsyncs_as_the_twin(side, tmp_path, monkeypatch):
    assert_same_writes(side, tmp_path, monkeypatch)


FAULTS = {
    "no fsync of the tree": ("storage.fsync_tree", lambda path: None),
    "no fsync of the directory": ("storage.fsync_directory", lambda path: None),
    "no fsync at once": ("FSYNCED_AT_ONCE", {"torch": (), "jax": ()}),
    "older ones stay": ("storage.remove_tree", lambda path: None),
    "half of the bytes": ("RawSaves._pieces", lambda self, size: iter([memoryview(bytes(size // 2))])),
}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_raw_save_that_does_less_is_noticed(fault, tmp_path, monkeypatch):
    name, less = FAULTS[fault]
    monkeypatch.setattr(saves_beside, "storage", SimpleNamespace(**vars(saves_beside.storage)))  # not the twin's
    monkeypatch.setattr(f"benchmarks.saves_beside.{name}", less)
    with pytest.raises((AssertionError, ValueError)):
        assert_same_writes("torch", tmp_path, monkeypatch)


@pytest.mark.parametrize(("side", "make"), [("torch", TorchSaves), ("jax", OrbaxSaves)])
def test_a_plain_save_holds_the_state_of_its_step_though_training_went_on(side, make, tmp_path):
    trainer = build(side, TINY, tmp_path / "run")
    saves = make(trainer, tmp_path)
    for _ in range(2):
        steps(trainer, 1)
        expected = trainer.export_state().arrays
        saves.save()
        steps(trainer, 3)
    saves.wait()
    weight = expected["model.params.layers.0.weight"]
    assert not np.array_equal(weight, trainer.export_state().arrays["model.params.layers.0.weight"])
    if side == "torch":
        import torch

        found = torch.load(saves.path, weights_only=True)["model"]["layers.0.weight"].numpy()
        assert np.array_equal(found, weight)
        assert [file.name for file in saves.path.parent.iterdir()] == ["state.pt"]
    else:
        import jax
        import orbax.checkpoint as ocp

        (step,) = saves._manager.all_steps()
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), trainer.state)
        arguments = ocp.checkpoint_utils.construct_restore_args(like)
        restored = saves._manager.restore(step, args=ocp.args.PyTreeRestore(like, restore_args=arguments))
        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(restored) if leaf.ndim == 2]
        assert any(np.array_equal(weight, array) or np.array_equal(weight, array.T) for array in arrays)
    saves.remove()
    assert not list(saves.path.parent.glob(saves.path.name))


@each_side
def test_every_arm_of_the_slowdown_ends_at_the_same_state_and_waits_for_its_last_save(side, tmp_path):
    arms = {arm.name: arm for arm in slowdown.arms(side, TINY, str(tmp_path), count=4, every=2)}
    ends = {}
    for name in ("own", "raw", "plain", "none", "own"):
        arms[name].reset()
        arms[name].run()
        ends[name] = arms["digest"].run()
        plain = {"torch": "torch/state.pt", "jax": "orbax/6"}[side]
        saved = {"own": "run/checkpoints/6", "raw": "raw/checkpoints/6", "plain": plain, "none": "run"}[name]
        assert (tmp_path / saved).exists()
    assert len(set(ends.values())) == 1
    arms["none"].run()
    assert arms["digest"].run() not in ends.values()
