"""Checkpoints by each of Orbax's own ways to save: inspected, verified, converted with their values, or refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from parity.cli import main
from parity.formats import Array, leaf_name, leaves, open_checkpoint

TREE: dict[str, Any] = {
    "params": {"dense": {"kernel": np.arange(12, dtype=np.float32).reshape(3, 4), "bias": np.zeros(4, np.float32)}},
    "step": 7,
    "rate": 0.25,
    "flag": np.array([True, False]),
    "name": "run",
    "nothing": None,
    "empty": {},
    "list": [np.int64(3), np.ones(2, np.int8)],
}
SHARDED = """
import sys, jax, jax.numpy as jnp, orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(jax.devices(), ("x",))
tree = {"w": jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, PartitionSpec("x")))}
with ocp.StandardCheckpointer() as saver:
    saver.save(sys.argv[1], tree)
"""


def handler(home: Path, tree: Any = TREE, **options: Any) -> Path:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(home / "c", args=ocp.args.PyTreeSave(tree))
    return home / "c"


def by_pytree(home: Path) -> Path:
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(home / "c", TREE)
    return home / "c"


def by_standard(home: Path, tree: Any = None) -> Path:
    with ocp.StandardCheckpointer() as saver:
        saver.save(home / "c", {key: value for key, value in TREE.items() if key != "name"} if tree is None else tree)
    return home / "c"


def by_manager(home: Path) -> Path:
    with ocp.CheckpointManager(home / "c") as manager:
        manager.save(1, args=ocp.args.PyTreeSave(TREE))
    assert (home / "c/1/default").is_dir()
    return home / "c"


def by_composite(home: Path) -> Path:
    with ocp.CheckpointManager(home / "c") as manager:
        items = {
            "params": ocp.args.StandardSave(TREE["params"]),
            "meta": ocp.args.JsonSave({"lr": 0.1, "tags": ["a", None]}),
            "rng": ocp.args.JaxRandomKeySave(jax.random.key(3)),
            "numpy": ocp.args.NumpyRandomKeySave(np.random.RandomState(0).get_state()),
            "lone": ocp.args.ArraySave(jnp.arange(4.0)),
        }
        manager.save(2, args=ocp.args.Composite(**items))
    return home / "c"


def by_v1(home: Path) -> Path:
    from orbax.checkpoint import experimental

    experimental.v1.save(home / "c", {"params": TREE["params"], "step": 7, "list": [np.ones(2), "text", 0.5]})
    return home / "c"


def of_nnx(home: Path) -> Path:
    return by_standard(home, nnx.to_pure_dict(nnx.state(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))))


def of_linen(home: Path) -> Path:
    model = nn.Dense(2)
    params = model.init(jax.random.key(0), jnp.ones((1, 3)))["params"]
    return by_standard(home, TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3)))


def of_keys(home: Path) -> Path:
    keys = {"one": jax.random.key(1), "four": jax.random.split(jax.random.key(2), 4)}
    return by_standard(home, {**keys, "other": jax.random.key(1, impl="rbg"), "w": jnp.ones(3)})


def sharded(home: Path) -> Path:
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SHARDED, str(home / "c")], check=True, env=environment, capture_output=True)
    return home / "c"


WAYS: dict[str, Callable[[Path], Path]] = {
    "PyTreeCheckpointer": by_pytree,
    "StandardCheckpointer": by_standard,
    "manager": by_manager,
    "composite": by_composite,
    "v1": by_v1,
    "nnx": of_nnx,
    "linen": of_linen,
    "keys": of_keys,
    "sharded": sharded,
    **{
        f"zarr{2 + z}{', OCDBT' * o}{', plain' * p}": (
            lambda home, z=z, o=o, p=p: handler(home, use_zarr3=bool(z), use_ocdbt=bool(o), use_compression=not p)
        )
        for z in (0, 1)
        for o in (0, 1)
        for p in (0, 1)
    },
}
SOAK = {"sharded", *(name for name in WAYS if name.endswith("plain"))}


def values(path: Path) -> dict[str, Any]:
    """Return the leaves of a checkpoint by name, arrays with their types and bytes."""
    found = {leaf_name(keys): leaf for keys, leaf in leaves(open_checkpoint(path).tree)}
    return {
        name: (leaf.dtype.name, leaf.shape, leaf.load().tobytes()) if isinstance(leaf, Array) else leaf
        for name, leaf in found.items()
    }


@pytest.mark.takes_seconds
@pytest.mark.parametrize("way", [pytest.param(name, marks=[pytest.mark.soak] * (name in SOAK)) for name in WAYS])
def test_each_way_of_orbax_is_read_and_carried(tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str) -> None:
    source = WAYS[way](tmp_path)
    expected = values(source)
    assert expected
    assert not any("object of" in str(leaf) for leaf in expected.values())
    assert main(["inspect", str(source)]) == 0
    assert main(["verify", str(source)]) == 4, "no seal: unverified"
    for to in ("orbax", "flax-msgpack"):
        target = tmp_path / to
        assert main(["convert", str(source), str(target), "--to", to]) == 0
        assert values(target) == expected
    for to in ("torch.save", "safetensors"):
        target = tmp_path / to
        capsys.readouterr()
        code = main(["convert", str(source), str(target), "--to", to])
        said = capsys.readouterr()
        assert (code == 0) == target.exists(), said.err
        if code:
            assert code == 2
            assert said.err.startswith("parity: error: ")
            assert said.err.count("\n") == 1
        if "--only params" in said.err:
            assert main(["convert", str(source), str(target), "--to", to, "--only", "params"]) == 0


def test_the_values_are_those_that_orbax_was_given(tmp_path: Path) -> None:
    found = values(by_pytree(tmp_path))
    kernel = TREE["params"]["dense"]["kernel"]
    assert found["params.dense.kernel"] == ("float32", (3, 4), kernel.tobytes())
    plain = {name: found[name] for name in ("step", "rate", "name", "nothing", "empty")}
    assert plain == {"step": 7, "rate": 0.25, "name": "run", "nothing": None, "empty": {}}
    assert found["list.1"] == ("int8", (2,), b"\1\1")


def test_random_keys_are_read_with_their_kind(tmp_path: Path) -> None:
    source = open_checkpoint(of_keys(tmp_path))
    assert "random keys of threefry2x32: four, one; data of random keys of rbg: other" in source.detail
    for name, key in {"one": jax.random.key(1), "other": jax.random.key(1, impl="rbg")}.items():
        assert np.array_equal(source.tree[name].load(), jax.random.key_data(key))


def test_items_of_random_keys_are_read_with_what_orbax_says_of_them(tmp_path: Path) -> None:
    tree = open_checkpoint(by_composite(tmp_path)).tree
    data = tree["rng"]["jax_random_key"]["checkpoint"].load()
    assert np.array_equal(data, jax.random.key_data(jax.random.key(3)))
    assert tree["rng"]["jax_random_key_metadata"] == {"typed": True}
    state = np.random.RandomState(0).get_state()
    assert np.array_equal(tree["numpy"]["np_random_key"][1].load(), state[1])
    assert tree["numpy"]["np_random_key_metadata"] == {"legacy": True}
