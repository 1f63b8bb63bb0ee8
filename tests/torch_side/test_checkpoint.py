"""What PyTorch saves in the background is the state of that step, and comes back bit for bit or not at all."""

from pathlib import Path
from typing import Any

import pytest
import torch

import torch_side
from parity.checkpoints import examine, is_intact, read_seal, require_verified
from parity.errors import CheckpointError
from parity.spec import override, spec_hash
from parity.state import compare_states, leaf_digests
from tests.support.saving import SPECS, assert_resumes, blamed, held, reseal, saved
from tests.support.small import state_of
from torch_side.checkpoint import STATE
from torch_side.formats.archive import read_records
from torch_side.snapshot import Snapshot
from torch_side.state import file_state

each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
ADAM = SPECS["adam"]


@each_spec
def test_a_save_is_sealed_with_the_digest_of_every_leaf(spec: Any, tmp_path: Path) -> None:
    trainer, path = saved(torch_side, spec, tmp_path)
    seal = require_verified(path)
    assert examine(path) == seal
    assert (seal.step, seal.metric, seal.side) == (3, 0.5, "torch")
    assert seal.spec_hash == spec_hash(spec, trainer.dataset.digest)
    assert seal.leaves == leaf_digests(trainer.export_state())
    assert seal.versions["torch"] == torch.__version__
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["3"]


@each_spec
def test_every_array_has_a_place(spec: Any, tmp_path: Path) -> None:
    """PyTorch stores bytes as they are in memory: the digest of a leaf decides on its place."""
    trainer, path = saved(torch_side, spec, tmp_path)
    seal = read_seal(path)
    assert set(seal.places) == set(trainer.export_state().arrays)
    for leaf, (place,) in seal.places.items():
        assert place.digest is None
        assert is_intact(path, place, seal.leaves[leaf])


@pytest.mark.takes_seconds("tied weights")
@each_spec
def test_damage_names_the_leaf_it_lies_in(spec: Any, tmp_path: Path) -> None:
    _, path = saved(torch_side, spec, tmp_path)
    for leaf, places in read_seal(path).places.items():
        assert [blamed(path, place) for place in places] == [(leaf,)] * len(places)


@each_spec
def test_what_was_saved_comes_back_and_goes_on_bit_for_bit(spec: Any, tmp_path: Path) -> None:
    trainer, _ = saved(torch_side, spec, tmp_path)
    assert_resumes(trainer, tmp_path)


@pytest.mark.takes_seconds("tied weights")
@each_spec
def test_training_on_beside_a_save_does_not_change_what_is_saved(spec: Any, tmp_path: Path) -> None:
    trainer = torch_side.build(spec, tmp_path)
    list(trainer.steps(3))
    state = trainer.export_state()
    with held(trainer, "_write") as reached:
        trainer.save(None)
        assert reached.wait(timeout=60)
        list(trainer.steps(43))
        assert not (tmp_path / "checkpoints").exists(), "nothing was written before the forty steps"
    trainer.wait()
    after = trainer.export_state()
    assert compare_states(state, after) != []
    assert read_seal(tmp_path / "checkpoints" / "3").leaves == leaf_digests(state)
    trainer.restore(3)
    assert compare_states(state, trainer.export_state()) == []


def test_saves_in_a_row_share_buffers_and_not_values(tmp_path: Path) -> None:
    spec = override(ADAM, ["save.keep_latest=10"])
    trainer = torch_side.build(spec, tmp_path)
    expected = {}
    for step in (3, 5, 10, 11):
        list(trainer.steps(step))
        expected[step] = state_of(trainer)
        trainer.save(None)
    trainer.close()
    for step, leaves in expected.items():
        path = tmp_path / "checkpoints" / str(step)
        assert require_verified(path).leaves == leaves
        other = torch_side.build(spec, tmp_path)
        other.restore(step)
        assert state_of(other) == leaves


def test_a_snapshot_takes_over_the_buffers_of_the_one_before_where_they_fit() -> None:
    trainer = torch_side.build(ADAM)
    list(trainer.steps(3))
    first = Snapshot(trainer.layout, trainer.state)
    addresses = {tensor.data_ptr() for tensor in first._tensors}
    list(trainer.steps(6))
    second = Snapshot(trainer.layout, trainer.state, first)
    assert {tensor.data_ptr() for tensor in second._tensors} == addresses
    arrays, counts = second.neutral()
    state = trainer.export_state()
    for leaf, value in state.arrays.items():
        assert arrays[leaf].tobytes() == value.tobytes()
    assert counts == {"optimizer.step": 6}


def test_tensors_that_share_memory_share_it_in_a_snapshot_and_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tied weights have two names in a state_dict: a copy for each would let them part behind a restore."""
    trainer = torch_side.build(ADAM)

    def with_alias(state: Any) -> Any:
        saved = file_state(state)
        weight = saved["model"]["layers.0.weight"]
        return {**saved, "more": {"alias": weight, "view": weight.view(-1), "part": weight[:2], "empty": weight[:0]}}

    monkeypatch.setattr("torch_side.snapshot.file_state", with_alias)
    snapshot = Snapshot(trainer.layout, trainer.state)
    live, copy = trainer.model.state_dict()["layers.0.weight"], snapshot.content["model"]["layers.0.weight"]
    more = snapshot.content["more"]
    assert more["alias"] is copy
    assert copy.data_ptr() != live.data_ptr()
    assert torch.equal(more["view"].view_as(copy), copy)
    assert torch.equal(more["part"], live[:2])
    torch.save(snapshot.content, tmp_path / STATE)
    stored = [name for name in read_records(tmp_path / STATE) if name.startswith("data/")]
    assert len(stored) == len(snapshot._tensors)
    loaded = torch.load(tmp_path / STATE, weights_only=True)
    assert loaded["more"]["alias"].data_ptr() == loaded["model"]["layers.0.weight"].data_ptr()


def test_an_odd_layout_in_memory_is_stored_in_c_order(tmp_path: Path) -> None:
    """A restored tensor may be strided, transposed or a view of a larger one: leaf, place and file still agree."""
    trainer = torch_side.build(ADAM, tmp_path)
    list(trainer.steps(3))
    first = trainer.params[0]
    moments = trainer.optimizer.state[first]
    state = trainer.export_state()
    moments["exp_avg"] = moments["exp_avg"].t().contiguous().t()
    moments["exp_avg_sq"] = torch.stack([moments["exp_avg_sq"]] * 2, dim=-1)[..., 0]
    assert not moments["exp_avg"].is_contiguous()
    assert not moments["exp_avg_sq"].is_contiguous()
    trainer.save(None)
    trainer.wait()
    path = tmp_path / "checkpoints" / "3"
    seal = require_verified(path)
    assert seal.leaves == leaf_digests(state)
    assert all(is_intact(path, place, seal.leaves[leaf]) for leaf, (place,) in seal.places.items())
    assert set(seal.places) == set(state.arrays)
    trainer.restore(3)
    assert compare_states(state, trainer.export_state()) == []


def test_before_the_first_step_the_moments_are_zeros_without_a_place(tmp_path: Path) -> None:
    """PyTorch has no optimizer entries then, and the file holds none either."""
    trainer, path = saved(torch_side, ADAM, tmp_path, steps=0)
    seal, state = require_verified(path), trainer.export_state()
    assert seal.leaves == leaf_digests(state)
    assert set(state.arrays) - set(seal.places) == {leaf for leaf in state.arrays if leaf.startswith("optimizer.")}
    assert_resumes(trainer, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.hidden=[17]"], r"layers\.0\.weight: expected .*\(17, 64\).*, got .*\(16, 64\)"),
        (["model.hidden=[16, 16]"], r"layers\.2\.(weight|bias)"),
        (["precision=float64"], r"layers\.0\.weight: expected .*float64.*, got .*float32"),
        (["optimizer.kind=sgd"], r"momentum|optimizer"),
    ],
)
def test_a_state_of_another_shape_or_type_is_refused_by_name(
    overrides: list[str], message: str, tmp_path: Path
) -> None:
    _, path = saved(torch_side, ADAM, tmp_path)
    other = torch_side.build(override(ADAM, overrides), tmp_path)
    reseal(path, spec_hash=other.spec_hash)  # as a faulty saver may: the run is known before the content is read
    before = state_of(other)
    with pytest.raises(CheckpointError, match=rf"checkpoint of step 3 .*{message}"):
        other.restore("latest")
    assert state_of(other) == before


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: s["model"].update({"layers.0.bias": s["model"]["layers.0.bias"].double()}), r"layers\.0\.bias: "),
        (lambda s: s["model"].pop("layers.1.weight"), r"layers\.1\.weight"),
        (
            lambda s: s["model"].update({"extra": torch.zeros(1)}),
            r"model\.extra: unexpected: this run",
        ),
        (
            lambda s: s["optimizer"]["state"][0].update(exp_avg=torch.zeros(3)),
            r"optimizer\.(state\.0\.exp_avg|first_moment\.layers\.0\.weight): ",
        ),
        (lambda s: s["optimizer"]["state"][1].update(step=torch.tensor(9.0)), r"optimizer\.step: differs between"),
        (lambda s: s.pop("scheduler"), "scheduler"),
    ],
)
def test_what_a_faulty_saver_sealed_is_refused_by_name(spoil: Any, message: str, tmp_path: Path) -> None:
    """The seal holds: the content does not fit."""
    _, path = saved(torch_side, ADAM, tmp_path)
    content = torch.load(path / STATE, weights_only=True)
    spoil(content)
    torch.save(content, path / STATE)
    reseal(path)
    other = torch_side.build(ADAM, tmp_path)
    before = state_of(other)
    with pytest.raises(CheckpointError, match=rf"checkpoint of step 3 does not fit this run: .*{message}"):
        other.restore("latest")
    assert state_of(other) == before
