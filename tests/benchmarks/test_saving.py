"""What checkpoints are compared with does the work it says it does."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import memory, saving
from benchmarks.saving import Copy, Raw, build, state_bytes


@pytest.fixture(autouse=True)
def _short_buffers(monkeypatch):
    monkeypatch.setattr(saving, "DRAWN_BYTES", 1000)


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 4321])
def test_a_raw_write_leaves_as_many_bytes_and_a_read_brings_them_back(size, tmp_path):
    raw = Raw(size, tmp_path)
    raw.write()
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]
    (found,) = Raw.read(tmp_path)
    assert found.size == size
    assert np.array_equal(found, raw.source)


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_copy_moves_the_state_as_it_is_at_the_time_and_as_it_lies_in_memory(side, tmp_path):
    trainer = build(side, 100_000, tmp_path / "run")
    copy = Copy(trainer)
    before = {name: target.copy() for name, target in copy.targets.items()}
    for _ in trainer.steps(trainer.step + 1):
        pass
    copy.run()
    state = trainer.export_state().arrays
    assert state_bytes(trainer) == sum(array.nbytes for array in state.values())
    for name, array in trainer.export_state(copy=False).arrays.items():
        assert np.array_equal(copy.targets[name], array)
        assert copy.targets[name].strides == array.strides
    assert not np.array_equal(copy.targets["model.params.layers.0.weight"], before["model.params.layers.0.weight"])


@pytest.mark.parametrize("parameters", [100_000, 1_000_000])
def test_the_model_has_the_parameters_asked_for_and_adam_triples_them(parameters, tmp_path):
    trainer = build("torch", parameters, tmp_path / "run")
    count = sum(p.numel() for p in trainer.params)
    assert count == pytest.approx(parameters, rel=0.01)
    assert state_bytes(trainer) == 12 * count
    assert trainer.step == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_peak_counts_what_was_held_at_once_and_starts_anew_each_time():
    size = 64 << 20

    def hold():
        np.ones(size, np.uint8)

    bare, held, after = (memory._peak(act) for act in (lambda: None, hold, lambda: None))
    assert held - bare == pytest.approx(size, rel=0.1)
    assert after - bare < size // 10


@pytest.mark.parametrize("make", [saving.torch_saver, saving.orbax_saver])
def test_other_savers_save_and_load_the_whole_state(make, tmp_path):
    side = "jax" if make is saving.orbax_saver else "torch"
    trainer = build(side, 20_000, tmp_path / "run")
    saver = make(trainer, tmp_path)
    saver.save()
    files = [p for p in Path(saver.path).rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) >= state_bytes(trainer)
    loaded = saver.load()
    if side == "torch":
        assert loaded["model"]["layers.0.weight"].equal(trainer.model.state_dict()["layers.0.weight"])
        assert len(loaded["optimizer"]["state"]) == len(trainer.params)
    else:
        import jax

        same = jax.tree.map(lambda a, b: bool((a == b).all()), loaded, trainer.state)
        assert all(jax.tree.leaves(same))
    saver.remove()
    assert not saver.path.exists()
