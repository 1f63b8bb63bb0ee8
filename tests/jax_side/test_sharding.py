"""A state that is split over a mesh: where it lies, and that it trains, saves and restores as on one device."""

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from jax_side.sharding import jax_axes
from parity import sides
from parity.checks import FLOAT64_LIMIT, curve_gap
from parity.errors import SpecError
from parity.reference.across import losses, run_from
from parity.spec import load
from parity.state import compare_states
from parity.twins import table

STEPS = 12
SMALL = {
    "mlp-digits": ["model.hidden=[16, 8]", "mesh.data=2", "mesh.fsdp=2", "mesh.model=2"],
    "cnn-digits": ["model.channels=[4, 8]", "mesh.fsdp=2", "mesh.model=2"],
    "gpt-text": ["model.width=16", "model.layers=1", "model.heads=2", "batch=16", "mesh.fsdp=2", "mesh.model=2"],
}


def small(name, *overrides, precision="float64"):
    return load(name, precision, [*SMALL[name], "execution.chunk=4", f"steps={STEPS}", *overrides])


def whole(name, *overrides, precision="float64"):
    return small(name, "mesh.data=1", "mesh.fsdp=1", "mesh.model=1", *overrides, precision=precision)


def partitions(part):
    return {".".join(map(str, path)): leaf.get_value().sharding.spec for path, leaf in nnx.to_flat_state(part)}


def unlike(before, after):
    return [d for d in compare_states(before, after) if d.leaf != "config.spec"]  # which names the mesh


long = pytest.mark.soak


@pytest.mark.parametrize(
    ("name", "execution"),
    [
        ("mlp-digits", "loop"),
        ("gpt-text", "scan"),
        *(pytest.param(*case, marks=long) for case in (("mlp-digits", "scan"), ("cnn-digits", "scan"))),
        *(pytest.param(*case, marks=long) for case in (("gpt-text", "loop"), ("cnn-digits", "loop"))),
    ],
)
def test_a_split_state_trains_saves_and_restores_as_on_one_device(name, execution, tmp_path):
    side = sides.load("jax")
    one = side.build(whole(name))
    reference = losses(run_from(one, STEPS))
    trainer = side.build(small(name, f"execution.jax={execution}"), tmp_path)
    curve = losses(run_from(trainer, STEPS // 2))
    trainer.save(None)
    saved = trainer.export_state()
    curve |= losses(run_from(trainer, STEPS))
    assert curve_gap(reference, curve).max_rel <= FLOAT64_LIMIT
    assert trainer.restore("latest") == STEPS // 2
    assert compare_states(saved, trainer.export_state()) == []
    again = losses(run_from(trainer, STEPS))
    assert again == {step: curve[step] for step in again}, "the same placement goes on bit for bit"
    trainer.close()
    other = side.build(whole(name), tmp_path)
    other.restore("latest")
    assert unlike(saved, other.export_state()) == []
    other.close()


@pytest.mark.parametrize(
    "optimizer", ["adafactor", *(pytest.param(name, marks=long) for name in ("muon", "nadam", "rprop"))]
)
def test_optimizers_whose_slots_have_other_shapes_are_split_too(optimizer):
    side, options = sides.load("jax"), [f"optimizer.kind={optimizer}"]
    trainer = side.build(small("mlp-digits", *options))
    reference = losses(run_from(side.build(whole("mlp-digits", *options)), STEPS))
    assert curve_gap(reference, losses(run_from(trainer, STEPS))).max_rel <= FLOAT64_LIMIT


@pytest.mark.parametrize("precision", ["float16", pytest.param("bfloat16", marks=long)])
def test_low_precision_is_split_too(precision):
    options = ["scaler.overflow_steps=[3]"] if precision == "float16" else []
    side = sides.load("jax")
    split = side.build(small("mlp-digits", *options, precision=precision))
    one = side.build(whole("mlp-digits", *options, precision=precision))
    for ours, theirs in zip(split.steps(STEPS), one.steps(STEPS), strict=True):
        assert (ours.skipped, ours.loss_scale, ours.batch) == (theirs.skipped, theirs.loss_scale, theirs.batch)
        assert ours.loss == pytest.approx(theirs.loss, rel=2e-2)


def test_every_array_lies_where_its_names_say():
    """The names are metadata of the variables, and the moments that Optax makes of them carry them on."""
    trainer = sides.load("jax").build(small("mlp-digits"))
    expected = {
        "layers.0.kernel": PartitionSpec("fsdp", "model"),
        "layers.0.bias": PartitionSpec("model"),
        "layers.1.kernel": PartitionSpec("model", "fsdp"),
        "layers.1.bias": PartitionSpec("fsdp"),
        "layers.2.kernel": PartitionSpec("fsdp"),
        "layers.2.bias": PartitionSpec(),
    }

    def lie_so():
        state = trainer.state
        return {**partitions(state.params), **partitions(state.optimizer["adam"].mu)} == expected

    assert lie_so()
    assert partitions(trainer.state.optimizer["adam"].nu) == expected
    for _ in trainer.steps(4):
        pass
    assert lie_so(), "and they stay there"
    kernel = trainer.state.params["layers"][0]["kernel"].get_value()
    assert {shard.data.shape for shard in kernel.addressable_shards} == {(32, 8)}
    rows = {row.path: row for row in table(trainer.spec.model)}
    for path, leaf in nnx.to_flat_state(trainer.state.params):
        assert leaf.get_metadata("out_sharding") == jax_axes(rows[".".join(map(str, path))])


def test_a_state_that_is_not_split_carries_no_names():
    trainer = sides.load("jax").build(whole("mlp-digits", "mesh.data=2"))
    leaves = jax.tree.leaves(trainer.state.params, is_leaf=lambda x: isinstance(x, nnx.Variable))
    assert not any(leaf.has_metadata("out_sharding") for leaf in leaves)


def test_an_imported_state_lies_as_the_first_one():
    trainer, one = (sides.load("jax").build(spec) for spec in (small("mlp-digits"), whole("mlp-digits")))
    for _ in one.steps(4):
        pass
    state = one.export_state()
    before = partitions(trainer.state.params)
    trainer.import_state(state)
    assert partitions(trainer.state.params) == before
    assert unlike(state, trainer.export_state()) == []


def test_native_dropout_draws_the_same_masks_over_any_mesh():
    native = ["dropout.generator=native"]
    side = sides.load("jax")
    one, split = (losses(run_from(side.build(make("mlp-digits", *native)), 4)) for make in (whole, small))
    assert np.allclose(list(one.values()), list(split.values()), rtol=1e-12, atol=0)


def test_more_devices_than_there_are_is_an_error_with_the_arithmetic():
    with pytest.raises(SpecError, match=r"^mesh: 4 x 2 x 2 = 16 devices asked for, 8 cpu devices here"):
        sides.load("jax").build(load("mlp-digits", None, ["mesh.data=4", "mesh.fsdp=2", "mesh.model=2"]))
    with pytest.raises(SpecError, match=r"^mesh\.fsdp: 16 devices asked for, 8 cpu devices here"):
        sides.load("jax").build(load("mlp-digits", None, ["mesh.fsdp=16"]))


def test_processes_that_were_asked_for_are_required():
    with pytest.raises(SpecError, match=r"^mesh\.processes: 2 asked for, the run was started as 1"):
        sides.load("jax").build(load("mlp-digits", None, ["mesh.data=2", "mesh.processes=2"]))
