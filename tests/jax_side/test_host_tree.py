"""Items that are written by one thread: what Orbax itself would have written, and what it reads."""

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

import jax_side
from jax_side.formats.host_tree import is_on_host, write_tree
from jax_side.formats.ocdbt import locate
from jax_side.formats.write_store import StoredArray, write_store
from parity.formats import InMemory
from parity.storage import digest_files
from tests.support.small import quick, small


class Pair(NamedTuple):
    first: Any
    second: Any


def of_a_twin(name: str, *overrides: str) -> Any:
    state = jax_side.build(small(name, "float32", *overrides)).state
    return jax.tree.map(np.asarray, {"params": state.params, "buffers": state.buffers, "optimizer": state.optimizer})


def of_a_user() -> Any:
    params = nnx.state(nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.BatchNorm(3, rngs=nnx.Rngs(0))))
    made = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)).init(nnx.to_pure_dict(params))
    return jax.tree.map(np.asarray, {"model": params, "optimizer": made})


TREES = {
    "every type": lambda: {
        kind: np.arange(6).reshape(2, 3).astype(kind)
        for kind in ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64")
    },
    "bfloat16 and float8": lambda: {
        "a": np.ones((2, 2), ml_dtypes.bfloat16),
        "b": np.ones(3, ml_dtypes.float8_e4m3fn),
    },
    "no axes": lambda: {"count": np.int32(7)[...], "rate": np.array(0.5)},
    "zeros": lambda: {"moment": np.zeros((4, 4), np.float32)},
    "lists, tuples and named tuples": lambda: [(np.ones(1), {"x": np.ones(2)}), Pair(np.ones(3), [np.ones(4)])],
    "empty containers": lambda: {"a": optax.EmptyState(), "b": {}, "c": [], "d": None, "e": np.ones(1), "f": ({},)},
    "larger than a node": lambda: {"w": np.arange(5000, dtype=np.float32).reshape(50, 100), "b": np.ones(3)},
    "Fortran's order": lambda: {"w": np.asfortranarray(np.arange(12.0).reshape(3, 4))},
    "an mlp": lambda: of_a_twin("mlp-digits"),
    "a cnn with SGD": lambda: of_a_twin("cnn-digits", "optimizer.kind=sgd"),
    "a gpt": lambda: of_a_twin("gpt-text"),
    "a user's": of_a_user,
}
LABEL = {"step": 3, "config": {"lr": 0.1}, "words": ["ä"]}


def keys(store: Any) -> dict[str, bytes]:
    opened = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{store}/"}).result()
    return {key.decode(): bytes(opened[key]) for key in opened.list().result()}


def of_orbax(path, tree):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_compression=False)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(tree, custom_metadata=LABEL))


@pytest.mark.parametrize("kind", TREES)
def test_it_is_what_orbax_writes(kind, tmp_path):
    tree = TREES[kind]()
    of_orbax(tmp_path / "theirs", tree)
    (tmp_path / "ours").mkdir()
    write_tree(tmp_path / "ours", tree, LABEL)
    ours, theirs = (json.loads((tmp_path / name / "_METADATA").read_text()) for name in ("ours", "theirs"))
    assert ours == theirs
    assert list(ours["tree_metadata"]) == list(theirs["tree_metadata"])
    assert keys(tmp_path / "ours") == keys(tmp_path / "theirs")


@pytest.mark.parametrize("kind", TREES)
def test_orbax_restores_it(kind, tmp_path):
    tree = TREES[kind]()
    write_tree(tmp_path, tree)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        found = checkpointer.restore(tmp_path, args=ocp.args.PyTreeRestore(tree, restore_args=arguments))
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def test_an_item_is_a_few_files_and_none_is_synchronized(tmp_path):
    write_tree(tmp_path, TREES["a gpt"]())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"_METADATA", "manifest.ocdbt"}
    assert len(files) <= 4


@pytest.mark.parametrize(
    "tree",
    [{}, {"a": jnp.ones(1)}, {"a": np.ones(1), "key": jax.random.key(0)}, {"a": np.ones((0, 2))}, {"a": 1.0}],
    ids=["nothing", "an array on a device", "a key beside an array", "no elements", "a number of Python"],
)
def test_what_is_not_all_on_the_host_is_left_to_orbax(tree):
    assert not is_on_host(tree)


def test_the_digests_are_those_of_the_files(tmp_path):
    digests = write_tree(tmp_path, TREES["a gpt"]())
    assert digests == digest_files(tmp_path, digests)
    assert len(digests) == 1


def test_a_disk_that_fails_is_an_error_with_its_file(tmp_path):
    (tmp_path / "manifest.ocdbt").mkdir()
    with pytest.raises(IsADirectoryError, match=r"manifest\.ocdbt"):
        write_tree(tmp_path, {"a": np.ones(3)})


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=300)


@quick(60)
@given(st.dictionaries(NAMES, st.lists(st.integers(1, 5), max_size=4), min_size=1, max_size=200))
def test_tensorstore_reads_any_names_and_shapes(tmp_path_factory, shapes):
    """Sizes and counts of every width in the node: one byte, two and three."""
    store = tmp_path_factory.mktemp("store")
    arrays = {name: np.full(shape, number, np.uint32) for number, (name, shape) in enumerate(shapes.items())}
    write_store(store, [StoredArray(name, InMemory(array), array.shape) for name, array in arrays.items()], inline=0)
    found = keys(store)
    assert len(found) == 2 * len(arrays)
    for name, array in arrays.items():
        chunk = ".".join("0" for _ in array.shape) or "0"
        assert found[f"{name}/{chunk}"] == array.tobytes()
        assert json.loads(found[f"{name}/.zarray"])["shape"] == list(array.shape)
    assert {name: sum(r.size for r in ranges if r.whole) for name, ranges in locate(store).items()} == {
        name: array.nbytes for name, array in arrays.items()
    }
