"""An error in the middle of a chunk: nothing of the state is saved or trained on, and a restore heals it."""

from itertools import pairwise

import jax
import pytest

from parity import sides
from parity.errors import InconsistentStateError
from parity.state import compare_states
from tests.support.small import small

each_side = pytest.mark.parametrize("side", ["torch", "jax"])


def built(side, path, *overrides):
    """Return a trainer whose chunks are 5 steps, and its checkpoint of step 10."""
    trainer = sides.load(side).build(small("mlp-digits", "float32", *overrides), path)
    list(trainer.steps(10))
    trainer.save(None)
    trainer.wait()
    return trainer


def uninterrupted(side, *overrides):
    trainer = sides.load(side).build(small("mlp-digits", "float32", *overrides))
    records = list(trainer.steps(30))
    return [record.loss for record in records[10:]], trainer.export_state()


def heals(side, trainer, *overrides):
    """Restore, continue, and compare with a run that was never interrupted, bit for bit."""
    assert trainer.restore("latest") == 10
    losses = [record.loss for record in trainer.steps(30)]
    expected, state = uninterrupted(side, *overrides)
    assert losses == expected
    assert compare_states(state, trainer.export_state()) == []


@pytest.mark.takes_seconds
@each_side
def test_an_inconsistent_state_is_not_saved_exported_or_trained_on_and_restore_heals_it(side, tmp_path, monkeypatch):
    """Without this, JAX saved parameters of step 20 as a sealed checkpoint of step 15."""
    trainer = built(side, tmp_path)

    def gone(n):
        if trainer.step == 15:
            raise OSError("the disk with the data is gone")

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "fetch_next", gone)
        with pytest.raises(OSError, match="the data is gone"):
            list(trainer.steps(30))
    assert trainer.step == 15
    for act in (lambda: trainer.save(None), trainer.export_state, lambda: next(trainer.steps(30))):
        with pytest.raises(InconsistentStateError, match="restore a checkpoint or import a state"):
            act()
    trainer.close()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.isdecimal()] == ["10"]
    heals(side, trainer)


@each_side
def test_importing_a_state_heals_too(side, tmp_path, monkeypatch):
    trainer = built(side, tmp_path)
    state = trainer.export_state()
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "_records", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(trainer.steps(30))
    trainer.import_state(state)
    assert [record.loss for record in trainer.steps(30)] == uninterrupted(side)[0]


@each_side
def test_who_stops_to_listen_between_two_records_has_a_whole_state(side, tmp_path):
    trainer = built(side, tmp_path)
    next(trainer.steps(30))
    assert trainer.export_state().scalars["counters.step"] == 15


@pytest.mark.takes_seconds
@pytest.mark.parametrize("mode", ["scan", "loop"])
def test_buffers_that_jax_was_given_and_lost_are_made_anew(mode, tmp_path, monkeypatch):
    """Ctrl-C after a call that was given the state, before what it returned is kept."""
    trainer = built("jax", tmp_path, f"execution.jax={mode}")
    owner, name = trainer, "_chunk_fn" if mode == "scan" else "_step_fn"
    real = getattr(owner, name)

    def interrupted(*args):
        jax.block_until_ready(real(*args))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(trainer.steps(30))
    assert any(leaf.is_deleted() for leaf in jax.tree.leaves(trainer.state)), "or this tests nothing"
    heals("jax", trainer, f"execution.jax={mode}")


@pytest.mark.takes_seconds
@pytest.mark.parametrize("side", ["torch", "jax"])
@pytest.mark.parametrize("processes", [1, 2])
def test_the_clock_cuts_chunks_of_a_single_process_only(side, processes, tmp_path):
    """Several that train together must cut the same ones, and their clocks differ."""
    trainer = sides.load(side).build(small("mlp-digits", None, "execution.chunk_seconds=1e-9"))
    trainer.processes = processes
    ends = sorted({0, *(trainer.step for _ in trainer.steps(40))})
    lengths = [end - start for start, end in pairwise(ends)]
    assert (min(lengths) < 5) == (processes == 1), lengths
