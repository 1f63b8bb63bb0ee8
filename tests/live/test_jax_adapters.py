"""What the capture sees of JAX, Optax, Flax and Grain, that it changes nothing, and faults that the check names."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen, nnx, serialization
from flax.core import freeze
from flax.training.dynamic_scale import DynamicScale
from jax._src import test_util

import parity
from jax_side.adapters import fresh_process, install, read_msgpack, read_orbax, set_aside
from parity.capture import Leaf, StateSnapshot, Walk
from tests.live import jax_trainers

install()
PARAMS = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}


def see(**values: Any) -> StateSnapshot:
    walk = Walk()
    for name, value in values.items():
        walk.root(name, value)
    return walk.finish()


def leaves(**values: Any) -> dict[str, Leaf]:
    return see(**values).leaves


def named(**values: Any) -> dict[str, tuple[str, str]]:
    return {path: (leaf.role, leaf.component) for path, leaf in leaves(**values).items()}


class Tied(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs)])
        self.act = nnx.relu
        self.tie = self.first.kernel
        self.scale = 2.0


# arrays and keys


def test_an_array_has_the_leaf_of_numpy() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert leaves(w=jnp.asarray(value))["w"].same(leaves(w=value)["w"])
    assert leaves(w=jnp.float32(2.5))["w"].same(leaves(w=np.array(2.5, np.float32))["w"])
    assert not leaves(w=jnp.asarray(value))["w"].same(leaves(w=value + 1e-7)["w"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "complex64", "float8_e4m3fn"])
def test_an_array_of_any_dtype_is_seen(dtype: str) -> None:
    assert leaves(w=jnp.ones((2, 2), dtype))["w"].kind == f"{dtype}[2x2]"
    assert leaves(w=jnp.ones((), dtype))["w"].role == "scalar"
    assert leaves(w=jnp.ones((0, 2), dtype))["w"].kind == f"{dtype}[0x2]"


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("params", "model.params"),
        ("opt_state", "optimizer.state"),
        ("ema_params", "ema"),
        ("avg_params", "ema"),
        ("batch_stats", "model.buffers"),
        ("grads", "gradients"),
        ("best_params", "best"),
        ("m", "optimizer.first_moment"),
        ("v", "optimizer.second_moment"),
    ],
)
def test_a_tree_is_named_by_its_outermost_word(path: str, component: str) -> None:
    found = leaves(**{path: {"BatchNorm_0": {"scale": jnp.ones(3)}}})
    assert found[f"{path}.BatchNorm_0.scale"].component == component


def test_two_names_of_one_array_are_no_tie() -> None:
    value = jnp.ones(3)
    assert {leaf.role for leaf in leaves(a=value, b=value).values()} == {"array"}


def test_a_donated_array_or_key_is_a_leaf() -> None:
    value, key = jnp.ones(3), jax.random.key(0)
    value.delete()
    jax.random.key_data(key).delete()
    found = leaves(w=value, key=key)
    assert (found["w"].kind, found["key"].kind) == ("deleted", "deleted")


def test_a_tracer_is_nothing() -> None:
    seen = []
    jax.jit(lambda x: seen.append(leaves(x=x, tree={"x": x})) or x)(jnp.ones(2))  # type: ignore[func-returns-value]
    assert [set(found) for found in seen] == [{"tree.len"}]


def test_keys_are_streams_typed_or_raw() -> None:
    found = leaves(key=jax.random.PRNGKey(0), other=jax.random.key(1), rngs={"dropout": jax.random.PRNGKey(2)})
    assert {path: leaf.component for path, leaf in found.items() if leaf.role == "stream"} == {
        "key": "rng.key",
        "other": "rng.other",
        "rngs.dropout": "rng.rngs.dropout",
    }
    assert not found["other"].same(leaves(other=jax.random.key(2))["other"])
    assert leaves(rows=jnp.ones((5, 2), jnp.uint32))["rows"].role == "array"


def test_a_sharded_array_is_seen_whole_with_its_sharding() -> None:
    mesh = jax.make_mesh((8,), ("d",))
    value = np.arange(16.0, dtype=np.float32)
    split = jax.device_put(value, jax.NamedSharding(mesh, jax.P("d")))
    copied = jax.device_put(value, jax.NamedSharding(mesh, jax.P()))
    found, plain = leaves(a=split, b=copied), leaves(a=value)["a"]
    assert found["a"].digest == found["b"].digest == plain.digest
    assert len({found["a"].kind, found["b"].kind, plain.kind}) == 3


def test_what_holds_no_state_is_left_out() -> None:
    compiled = jax.jit(lambda x: x).lower(1.0).compile()
    split = nnx.split(Tied(nnx.Rngs(0)))[0]
    found = see(
        c=compiled, f=jax.jit(lambda x: x), s=jax.ShapeDtypeStruct((2,), jnp.float32), t=jax.tree.structure(PARAMS),
        g=split, relu=jax.nn.relu, n=nnx.jit(lambda x: x), saver=ocp.StandardCheckpointer(),
    )  # fmt: skip
    assert (found.leaves, found.unseen) == ({}, {})


def test_a_mutable_array_under_two_names_is_a_tie() -> None:
    value = jax.new_ref(jnp.ones(3))
    assert named(a=value, b=value) == {"a": ("array", "a"), "b": ("alias", "model.ties")}


def test_a_compiled_function_shows_what_it_closes_over() -> None:
    rate = 0.25
    assert leaves(step=jax.jit(lambda x: x * rate))["step.rate"].digest == "0.25"


def test_a_node_of_trees_is_seen() -> None:
    @jax.tree_util.register_pytree_with_keys_class
    class Node:
        def __init__(self, w: Any) -> None:
            self.w = w

        def tree_flatten_with_keys(self) -> Any:
            return [(jax.tree_util.GetAttrKey("w"), self.w)], None

        @classmethod
        def tree_unflatten(cls, _: Any, inside: Any) -> Any:
            return cls(*inside)

    state = optax.trace(0.9).init(Node(jnp.ones(2)))
    assert named(params=Node(jnp.ones(2)), state=state) == {
        "params.w": ("array", "model.params"),
        "state.trace.w": ("state", "optimizer.momentum"),
    }


# Optax


@pytest.mark.parametrize(
    ("transformation", "expected"),
    [
        (optax.adam(1e-3), {"[0].count": "step", "[0].mu.w": "first_moment", "[0].nu.w": "second_moment"}),
        (optax.sgd(1e-3, momentum=0.9), {"[0].trace.w": "momentum"}),
        (optax.sgd(optax.linear_schedule(1, 0, 9)), {"[1].count": "schedule.step"}),
        (optax.masked(optax.trace(0.9), {"w": True, "b": False}), {".inner_state.trace.w": "momentum"}),
        (
            optax.multi_transform({"a": optax.adam(1e-3), "b": optax.set_to_zero()}, {"w": "a", "b": "b"}),
            {".inner_states.a.inner_state[0].mu.w": "first_moment"},
        ),
        (
            optax.MultiSteps(optax.adam(1e-3), 4),
            {".mini_step": "counters.step", ".gradient_step": "step", ".acc_grads.w": "gradients"},
        ),
        (
            optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
            {".count": "schedule.step", ".hyperparams.learning_rate": "schedule.lr"},
        ),
        (
            optax.contrib.reduce_on_plateau(),
            {".scale": "schedule.lr", ".best_value": "schedule.best_value", ".count": "schedule.step"},
        ),
        (optax.ema(0.9), {".count": "ema", ".ema.w": "ema"}),
        (
            optax.apply_if_finite(optax.trace(0.9), 3),
            {".notfinite_count": "notfinite_count", ".inner_state.trace.w": "momentum"},
        ),
        (
            optax.contrib.schedule_free_adamw(1e-3),
            {".step_count": "step", ".z.w": "z", ".base_optimizer_state[0].nu.w": "second_moment"},
        ),
        (optax.scale_by_factored_rms(), {".count": "step", ".v.w": "second_moment"}),
    ],
)  # fmt: skip
def test_states_of_optax_are_named_by_class_and_field(transformation: Any, expected: dict[str, str]) -> None:
    found = named(opt_state=transformation.init(PARAMS))
    for path, name in expected.items():
        wanted = name if "." in name or name in ("ema", "gradients") else f"optimizer.{name}"
        assert found[f"opt_state{path}"] == ("state", wanted)


def test_a_key_in_a_state_of_optax_is_a_stream() -> None:
    found = named(opt_state=optax.add_noise(0.1, 0.1, jax.random.key(0)).init(PARAMS))
    assert found["opt_state.rng_key"] == ("stream", "rng.opt_state.rng_key")


def test_the_numbers_of_a_transformation_are_seen() -> None:
    found = leaves(tx=optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 4, 40), b1=0.8))
    assert {leaf.component: leaf.digest for leaf in found.values()}["schedule.decay_steps"] == "36.0"
    assert "0.800000011920929" in {leaf.digest for leaf in found.values()}
    rate = leaves(tx=optax.sgd(0.5))
    assert {(leaf.component, leaf.digest) for leaf in rate.values()} == {("schedule.lr", "-0.5")}


def test_a_schedule_that_was_called_is_the_same() -> None:
    called, new = (optax.cosine_decay_schedule(0.1, 36) for _ in range(2))
    called(3)
    assert leaves(tx=optax.sgd(called)) == leaves(tx=optax.sgd(new))


def test_a_count_that_was_restored_as_a_python_number_is_the_same() -> None:
    count, number = (optax.ScaleByScheduleState(value) for value in (jnp.int32(3), 3))
    assert leaves(s=count)["s.count"].same(leaves(s=number)["s.count"])


# Flax


def test_modules_of_nnx_are_seen_by_kind_of_variable() -> None:
    found = named(model=Tied(nnx.Rngs(0)))
    assert found["model.first.kernel"] == ("state", "model.params")
    assert found["model.layers[0].bias"] == ("state", "model.params")
    assert found["model.norm.mean"] == ("state", "model.buffers")
    assert found["model.norm.use_running_average"] == ("state", "model.mode")
    assert found["model.drop.deterministic"] == ("state", "model.mode")
    assert found["model.drop.rate"] == ("state", "model.hyperparameters")
    assert found["model.drop.rngs"] == ("stream", "rng.model.drop.rngs")
    assert found["model.tie"] == ("alias", "model.ties")
    assert found["model.scale"] == ("scalar", "model.hyperparameters")
    assert not any(path.startswith("model.act") for path in found)


def test_a_split_module_has_the_leaves_of_the_module() -> None:
    model = Tied(nnx.Rngs(0))
    whole, state = leaves(model=model), leaves(model=nnx.split(model)[1])
    assert state
    assert all(leaf.same(whole[path]) and leaf.role == whole[path].role for path, leaf in state.items())


def test_an_averaged_module_is_one_and_has_no_mode() -> None:
    found = named(ema_model=Tied(nnx.Rngs(0)))
    assert found["ema_model.first.kernel"] == ("state", "ema")
    assert "ema_model.drop.deterministic" not in found


def test_the_optimizer_of_nnx_is_seen_with_its_transformation() -> None:
    found = named(optimizer=nnx.Optimizer(Tied(nnx.Rngs(0)), optax.adam(1e-3), wrt=nnx.Param))
    assert found["optimizer.step"] == ("state", "optimizer.step")
    assert found["optimizer.opt_state[0].count"] == ("state", "optimizer.step")
    assert found["optimizer.opt_state[0].mu.first.kernel"] == ("state", "optimizer.first_moment")
    assert found["optimizer.opt_state[0].nu.layers[0].bias"] == ("state", "optimizer.second_moment")
    assert ("state", "schedule.lr") in found.values()


def test_streams_of_nnx_move_when_something_is_drawn() -> None:
    rngs = nnx.Rngs(dropout=0)
    before = leaves(rngs=rngs)
    rngs.dropout()
    assert not before["rngs.dropout"].same(leaves(rngs=rngs)["rngs.dropout"])


def test_a_train_state_is_seen_by_field() -> None:
    found = named(state=jax_trainers.new_linen_state())
    assert found["state.step"] == ("state", "counters.step")
    assert found["state.params.BatchNorm_0.scale"] == ("state", "model.params")
    assert found["state.batch_stats.BatchNorm_0.mean"] == ("state", "model.buffers")
    assert found["state.ema.Dense_0.kernel"] == ("state", "ema")
    assert found["state.dropout_key"] == ("stream", "rng.state.dropout_key")
    assert found["state.opt_state[1][0].mu.Dense_0.kernel"] == ("state", "optimizer.first_moment")
    assert ("state", "schedule.decay_steps") in found.values()


def test_a_train_state_under_two_names_is_no_tie() -> None:
    state = jax_trainers.new_linen_state()
    assert not any(role == "alias" and "state" in name for _, (role, name) in named(a=state, best=state).items())


def test_other_parts_of_flax_are_seen() -> None:
    bound = linen.Dropout(0.1, deterministic=False)
    found = named(scale=DynamicScale(), params=freeze({"Dense_0": {"kernel": jnp.ones((2, 2))}}), drop=bound)
    assert found["scale.scale"] == ("state", "scaler.scale")
    assert found["scale.fin_steps"] == ("state", "scaler.growth_tracker")
    assert found["params.Dense_0.kernel"] == ("array", "model.params")
    assert found["drop.deterministic"] == ("state", "model.mode")


# data, settings, the process


def grain_iterators() -> dict[str, Any]:
    dataset = grain.MapDataset.source(list(range(20))).seed(3).shuffle().batch(2)
    sampler = grain.IndexSampler(20, shuffle=True, seed=0, num_epochs=1, shard_options=grain.NoSharding())
    loader = grain.DataLoader(data_source=list(range(20)), sampler=sampler, worker_count=0)
    return {"mapped": iter(dataset.to_iter_dataset()), "loader": iter(loader)}


@pytest.mark.parametrize("name", ["mapped", "loader"])
def test_an_iterator_of_grain_is_a_position_and_is_not_advanced(name: str) -> None:
    seen, other = grain_iterators()[name], grain_iterators()[name]
    first = leaves(it=seen)
    assert {(leaf.role, leaf.component) for leaf in first.values()} == {("position", "data.position")}
    for _ in range(4):
        leaves(it=seen)
        np.testing.assert_array_equal(next(seen), next(other))
    assert leaves(it=seen) != first


def test_settings_are_flags_and_are_put_back() -> None:
    put_back, before = set_aside(), jax.config.jax_default_matmul_precision
    other = "highest" if before != "highest" else "high"
    jax.config.update("jax_default_matmul_precision", other)
    fresh_process()
    assert jax.config.jax_default_matmul_precision == other
    put_back()
    assert jax.config.jax_default_matmul_precision == before


def test_adapters_import_neither_flax_optax_orbax_nor_grain_and_start_no_backend() -> None:
    code = (
        "import sys, jax; from parity import sides; from parity.capture import capture; sides.adapters(); "
        "shown = capture([]).leaves; assert shown['jax.config.jax_enable_x64'].role == 'flag'; "
        "from jax._src import xla_bridge; assert not xla_bridge.backends_are_initialized(); "
        "print([m for m in ('flax', 'optax', 'orbax', 'grain', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# nothing is changed


def test_capture_draws_nothing_and_compiles_nothing() -> None:
    model, other = Tied(nnx.Rngs(0)), Tied(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    state, key = jax_trainers.new_linen_state(), jax.random.key(0)
    jax.random.normal(key)
    with test_util.count_jit_and_pmap_lowerings() as count:
        for _ in range(2):
            leaves(model=model, optimizer=optimizer, state=state, key=key, split=nnx.split(model))
    assert count() == 0
    x = jnp.ones((4, 3))
    np.testing.assert_array_equal(model.drop(x), other.drop(x))
    assert leaves(m=model) == leaves(m=other)
    assert float(jax.random.normal(key)) == float(jax.random.normal(jax.random.key(0)))


def test_capture_leaves_a_buffer_free_to_be_donated() -> None:
    step = jax.jit(lambda tree: jax.tree.map(lambda a: a + 1, tree), donate_argnums=0)
    state = {"w": jnp.arange(8.0) + 1, "b": jnp.zeros((3, 3)) + 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            found, where = see(state=state), state["w"].unsafe_buffer_pointer()
            before, state = state, step(state)
            assert before["w"].is_deleted()
            assert state["w"].unsafe_buffer_pointer() == where
            assert found.leaves["state.w"].kind == "float32[8]"


def test_capture_keeps_no_copy_on_an_array() -> None:
    value = jax.device_put(jnp.arange(16.0), jax.NamedSharding(jax.make_mesh((8,), ("d",)), jax.P("d")))
    leaves(w=value)
    assert value._npy_value is None


def test_capture_works_under_a_transfer_guard() -> None:
    value = jnp.ones(3)
    with jax.transfer_guard("disallow"):
        assert leaves(w=value)["w"].kind == "float32[3]"


# files


def test_files_of_flax_are_read(tmp_path: Path) -> None:
    tree = {"params": {"w": np.ones((2, 2), np.float32)}, "step": 3}
    for name in ("a.msgpack", "checkpoint_10"):
        (tmp_path / name).write_bytes(serialization.to_bytes(tree))
        found = read_msgpack(tmp_path / name)
        np.testing.assert_array_equal(found["params"]["w"], tree["params"]["w"])
        assert found["step"] == 3
    assert read_msgpack(tmp_path) is None
    assert read_msgpack(tmp_path / "model.pt") is None


@pytest.mark.parametrize("saver", [ocp.PyTreeCheckpointer, ocp.StandardCheckpointer])
def test_directories_of_orbax_are_read(tmp_path: Path, saver: Any) -> None:
    tree = {"params": {"w": jnp.ones((2, 2), jnp.bfloat16)}, "step": np.int64(3), "mu": [jnp.zeros(3)]}
    with saver() as checkpointer:
        checkpointer.save(tmp_path / "step_3", tree)
    for path in (tmp_path / "step_3", tmp_path / "step_3" / "_METADATA"):
        found = leaves(file=read_orbax(path))
        assert found["file.params.w"].same(leaves(w=np.ones((2, 2), jnp.bfloat16))["w"])
        assert found["file.step"].digest == "3"
        assert found["file.mu[0]"].kind == "float32[3]"
    assert read_orbax(tmp_path / "step_3" / "manifest.ocdbt") == {}
    assert read_orbax(tmp_path) is None


# trainers

CLEAN = (
    jax_trainers.train_nnx,
    jax_trainers.train_linen,
    jax_trainers.train_raw,
    jax_trainers.train_folded,
    jax_trainers.train_grain,
)
FAULTS = {
    jax_trainers.train_nnx: {
        "replace_discarded": "model.params",
        "schedule_of_the_rest": "schedule.decay_steps",
        "data_from_zero": "data.position",
        "mode_left": "model.mode",
        "key_not_restored": "rng.model.drop.rngs",
        "statistics_lost": "model.buffers",
        "params_rounded": "model.params",
        "moments_rounded": "optimizer.first_moment",
        "weights_lost": "model.params",
        "counters_as_floats": "schedule.step",
        "count_lost": "schedule.step",
        "optimizer_step_lost": "optimizer.step",
        "optimizer_lost": "schedule.step",
    },
    jax_trainers.train_linen: {
        "optimizer_lost": "schedule.step",
        "schedule_lost": "schedule.step",
        "count_lost": "optimizer.step",
        "second_moment_lost": "optimizer.second_moment",
        "statistics_lost": "model.buffers",
        "key_lost": "rng.state.dropout_key",
        "average_lost": "ema",
        "params_rounded": "model.params",
        "step_off_by_one": "counters.step",
    },
    jax_trainers.train_raw: {
        "step_off_by_one": "counters.step",
        "params_lost": "model.params",
        "opt_state_lost": "schedule.step",
        "ema_lost": "ema",
        "momentum_lost": "optimizer.momentum",
        "schedule_lost": "schedule.step",
        "params_rounded": "model.params",
        "key_lost": "rng.key",
        "perm_lost": "data.position",
        "position_lost": "data.position",
        "rng_lost": "rng.rng",
    },
    jax_trainers.train_folded: {"seed_changed": "rng.key"},
    jax_trainers.train_grain: {"iterator_lost": "data.position"},
}


@pytest.mark.parametrize("stop", [5, 8, 9, 11, 12])
@pytest.mark.parametrize("train", CLEAN, ids=lambda train: train.__name__)
def test_a_clean_trainer_holds(train: Any, stop: int) -> None:
    found = parity.resumes(train, steps=jax_trainers.STEPS, stop_at=stop, mode="inline")
    assert found.verdict == "holds", found.text()
    assert found.unseen == {}
    assert "jax" in found.frameworks


@pytest.mark.parametrize(
    ("train", "fault", "component"),
    [(train, fault, component) for train, planted in FAULTS.items() for fault, component in planted.items()],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_fault_is_found_and_named_first(train: Any, fault: str, component: str) -> None:
    found = parity.resumes(
        train, steps=jax_trainers.STEPS, stop_at=jax_trainers.STOP, mode="inline", options={"fault": fault}
    )
    assert found.verdict == "broken", found.text()
    assert found.components[0] == component
