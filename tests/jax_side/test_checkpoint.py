"""What Orbax saves in the background is the state of that step, and comes back bit for bit or not at all."""

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_side
from jax_side.formats.ocdbt import locate
from jax_side.snapshot import BLOCK, Snapshot
from parity.checkpoints import examine, is_intact, read_seal, require_verified
from parity.errors import CheckpointError
from parity.spec import override, spec_hash
from parity.state import compare_states, leaf_digests, orders_of
from tests.support.saving import SPECS, assert_resumes, blamed, held, reseal, saved
from tests.support.small import bits_of, state_of

ADAM = SPECS["adam"]


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS)
def one(request: Any, tmp_path_factory: Any) -> Any:
    """Return a run saved at step 5, for all to read: trainer at step 10, state at 5, curve behind 5, checkpoint."""
    trainer, path = saved(jax_side, request.param, tmp_path_factory.mktemp("run"), steps=5)
    state = trainer.export_state()
    curve = bits_of(list(trainer.steps(10)))
    return trainer, state, curve, path


def test_a_save_is_sealed_with_the_digest_of_every_leaf(one: Any) -> None:
    trainer, state, _, path = one
    seal = require_verified(path)
    assert examine(path) == seal
    assert (seal.step, seal.metric, seal.side) == (5, 0.5, "jax")
    assert seal.spec_hash == spec_hash(trainer.spec, trainer.dataset.digest)
    assert seal.leaves == leaf_digests(state, orders_of(seal.leaves))
    assert seal.versions["orbax-checkpoint"] == importlib.metadata.version("orbax-checkpoint")
    assert [entry.name for entry in path.parent.iterdir()] == ["5"]


def test_every_array_has_a_place(one: Any) -> None:
    """Small arrays lie in a node of the store beside others, large ones in ranges of their own."""
    _, state, _, path = one
    seal = read_seal(path)
    assert set(state.arrays) - set(seal.places) == set()
    for leaf, places in seal.places.items():
        assert all(is_intact(path, place, seal.leaves[leaf]) for place in places)
        assert not seal.leaves[leaf].startswith("int64[") or all(place.digest for place in places), "stored as int32"


def test_damage_names_the_leaf_it_lies_in(one: Any) -> None:
    path = one[-1]
    for leaf, places in read_seal(path).places.items():
        assert all(leaf in blamed(path, place) for place in places)


@pytest.mark.breaks_first("adam")
def test_what_was_saved_comes_back_and_goes_on_bit_for_bit(one: Any) -> None:
    trainer, state, curve, path = one
    other = jax_side.build(trainer.spec, path.parents[1])
    assert other.restore("latest") == 5
    assert compare_states(state, other.export_state()) == []
    assert bits_of(list(other.steps(10))) == curve
    other.close()


def test_training_on_beside_a_save_does_not_change_what_is_saved(one: Any, tmp_path: Path) -> None:
    """The seal digests views of the arrays that are saved; a step must not get their buffers to write to."""
    trainer = jax_side.build(one[0].spec, tmp_path)
    list(trainer.steps(5))
    state = trainer.export_state()
    with held(trainer, "_seal") as reached:
        trainer.save(None)
        list(trainer.steps(25))
        assert reached.wait(timeout=60)
        list(trainer.steps(45))
        assert not (tmp_path / "checkpoints" / "5").exists(), "nothing was sealed before the forty steps"
    trainer.wait()
    assert compare_states(state, trainer.export_state()) != []
    leaves = read_seal(tmp_path / "checkpoints" / "5").leaves
    assert leaves == leaf_digests(state, orders_of(leaves))
    trainer.restore(5)
    assert compare_states(state, trainer.export_state()) == []
    trainer.close()


def test_damage_in_an_array_s_own_range_names_that_leaf_only_and_the_range_holds_its_bytes(tmp_path: Path) -> None:
    trainer, path = saved(jax_side, ADAM, tmp_path, steps=0)
    kernel = np.asarray(trainer.state.params["layers"][0]["kernel"].get_value())
    place = max(read_seal(path).places["model.params.layers.0.weight"], key=lambda place: place.size)
    assert blamed(path, place) == ("model.params.layers.0.weight",)
    data = (path / place.file).read_bytes()[place.start : place.start + place.size]
    assert data == kernel.tobytes(), "uncompressed, as it is in memory"
    trainer.close()


def test_saves_in_a_row_share_no_values(tmp_path: Path) -> None:
    spec = override(ADAM, ["save.keep_latest=10"])
    trainer = jax_side.build(spec, tmp_path)
    expected = {}
    for step in (5, 10, 15, 20):
        list(trainer.steps(step))
        expected[step] = state_of(trainer)
        trainer.save(None)
    trainer.close()
    for step, leaves in expected.items():
        assert require_verified(tmp_path / "checkpoints" / str(step)).leaves == leaves
        trainer.restore(step)
        assert state_of(trainer) == leaves
    trainer.close()


@pytest.mark.parametrize("block", [8, 20, 100, BLOCK])
def test_a_snapshot_holds_every_bit_in_whatever_blocks_and_takes_over_the_buffers_of_the_one_before(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jax_side.snapshot.BLOCK", block)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    trainer = jax_side.build(ADAM)
    list(trainer.steps(3))
    first = Snapshot(trainer.layout, trainer.state)
    addresses = {leaf.ctypes.data for leaf in jax.tree.leaves(first.content)}
    list(trainer.steps(6))
    second = Snapshot(trainer.layout, trainer.state, first)
    assert {leaf.ctypes.data for leaf in jax.tree.leaves(second.content)} == addresses
    arrays, counts = second.neutral()
    for leaf, value in trainer.export_state().arrays.items():
        assert arrays[leaf].tobytes() == value.tobytes()
    assert counts == {"optimizer.step": 6}
    assert second.size >= 3 * sum(row.nbytes for leaf, row in arrays.items() if leaf.startswith("model.params"))


def test_tied_weights_are_one_leaf_in_one_place(tmp_path: Path) -> None:
    trainer, path = saved(jax_side, SPECS["tied weights"], tmp_path, steps=0)
    names = [name for name in locate(path / "params") if "token" in name or "head" in name]
    assert len(names) == 1
    assert not [leaf for leaf in read_seal(path).leaves if "head" in leaf]
    trainer.close()


def test_before_the_first_step_the_moments_are_zeros_with_a_place(tmp_path: Path) -> None:
    """Optax has its state from the start, unlike PyTorch."""
    trainer, path = saved(jax_side, ADAM, tmp_path, steps=0)
    state = trainer.export_state()
    leaves = require_verified(path).leaves
    assert leaves == leaf_digests(state, orders_of(leaves))
    assert set(state.arrays) <= set(read_seal(path).places)
    assert_resumes(trainer, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.hidden=[17]"], r"layers\.0\.bias\S*: expected float32\[17\], found float32\[16\]"),
        (["model.hidden=[16, 16]"], r"layers\.(1|2)\."),
        (["precision=float64"], r"layers\.0\.bias\S*: expected float64\[16\], found float32\[16\]"),
        (["optimizer.kind=sgd"], r"optimizer\."),
    ],
)
def test_a_state_of_another_shape_or_type_is_refused_by_name(
    overrides: list[str], message: str, tmp_path: Path
) -> None:
    trainer, path = saved(jax_side, ADAM, tmp_path)
    trainer.close()
    other = jax_side.build(override(ADAM, overrides), tmp_path)
    reseal(path, spec_hash=other.spec_hash)  # as a faulty saver may: the run is known before the content is read
    before = state_of(other)
    with pytest.raises(CheckpointError, match=rf"checkpoint of step 3.*{message}"):
        other.restore("latest")
    assert state_of(other) == before
    other.close()


def _with_float_count(trainer: Any) -> Any:
    adam = trainer.state.optimizer["adam"]
    return trainer.state._replace(
        optimizer={**trainer.state.optimizer, "adam": adam._replace(count=adam.count.astype(jnp.float32))}
    )


def test_a_leaf_left_over_is_refused_by_name(tmp_path: Path) -> None:
    """Orbax would leave it out without a word."""
    trainer = jax_side.build(ADAM, tmp_path)
    template = trainer.state
    trainer.state = template._replace(optimizer={**template.optimizer, "extra": jnp.zeros(3)})
    trainer.save(None)
    trainer.wait()
    with pytest.raises(CheckpointError, match=r"optimizer\.extra: expected None, found float32\[3\]"):
        trainer.checkpoints.restore("latest", template)
    trainer.close()


def test_a_restored_state_lies_in_the_buffers_of_the_one_it_replaces(tmp_path: Path) -> None:
    """New ones would be a third copy of the state, and Orbax's are not always JAX's to donate to the next chunk."""
    trainer, _ = saved(jax_side, ADAM, tmp_path)
    expected = state_of(trainer)
    list(trainer.steps(6))
    addresses = sorted(leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(trainer.state))
    trainer.restore("latest")
    assert sorted(leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(trainer.state)) == addresses
    assert state_of(trainer) == expected
    trainer.close()


def test_a_state_of_another_structure_is_not_run_by_what_was_compiled_for_the_one_before() -> None:
    trainer = jax_side.build(ADAM)
    list(trainer.steps(3))
    trainer.state = trainer.state._replace(rngs={})
    with pytest.raises(TypeError, match="carry"):
        list(trainer.steps(6))


def test_what_a_faulty_saver_sealed_is_refused_by_name(tmp_path: Path) -> None:
    """The seal holds: the content does not fit."""
    trainer, path = saved(jax_side, ADAM, tmp_path)
    list(trainer.steps(4))
    trainer.state = _with_float_count(trainer)
    trainer.save(None)
    trainer.close()
    other = jax_side.build(ADAM, tmp_path)
    before = state_of(other)
    with pytest.raises(CheckpointError, match=r"optimizer\.adam\.count: expected int32\[\], found float32\[\]"):
        other.restore("latest")
    shutil.rmtree(path / "model_state", ignore_errors=True)
    shutil.rmtree(path / "params")
    reseal(path)
    with pytest.raises(CheckpointError, match=r"3/params(/_METADATA cannot be read| holds no)"):
        other.restore(3)
    assert state_of(other) == before


def test_a_restored_state_owns_its_buffers(tmp_path: Path) -> None:
    """Chunks are donated what was restored: a view of memory that another owns would be written over."""
    trainer, path = saved(jax_side, ADAM, tmp_path)
    trainer.restore(3)
    before = {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    held_on_to = [np.array(leaf) for leaf in jax.tree.leaves(trainer.state.params)]
    list(trainer.steps(20))
    trainer.restore(3)
    after = [np.array(leaf) for leaf in jax.tree.leaves(trainer.state.params)]
    assert all(np.array_equal(a, b) for a, b in zip(held_on_to, after, strict=True))
    assert {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    trainer.close()
