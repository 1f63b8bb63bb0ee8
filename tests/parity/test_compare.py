"""Two checkpoints are compared leaf by leaf, of one side by their seals alone, across sides with nothing loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import jax_side
import torch_side
from parity.checkpoints import DRAFT, FILE, ByteRange, Seal, commit, compare, read_seal, seal_text
from parity.errors import CheckpointError, DamagedError
from parity.spec import PRECISIONS, Precision
from parity.state import DigestSchema, Order, component_of, digest_text
from tests.support.sealed import flip, save
from tests.support.small import NAMES, overflowing, small, with_leaf

WEIGHT = "model.params.weight"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path, 10)


def test_two_checkpoints_are_compared_by_their_seals_alone(path: Path, tmp_path: Path) -> None:
    other = save(tmp_path, 20)
    assert compare(path, other) == []
    seal = read_seal(other)
    leaves = {**seal.leaves, "model.params.bias": "uint8[4] blocks " + "0" * 32}
    (other / FILE).write_text(seal_text(replace(seal, leaves=leaves)))
    (difference,) = compare(path, other)
    assert (difference.leaf, difference.kind) == ("model.params.bias", "value")
    assert compare(path, save(path.parent / "older", 20, schema=1)) == []
    (other / FILE).unlink()
    with pytest.raises(CheckpointError, match="20 has no seal"):
        compare(path, other)


# Arrays whose axes lie in memory in different orders.

VALUES = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "kernel": np.arange(120, dtype=np.float64).reshape(2, 3, 4, 5),
    "a type that NumPy does not know": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
    "one row": np.arange(3, dtype=np.float32).reshape(1, 3),
}


def of_one_array(
    checkpoints: Path, step: int, value: Any, order: Order, schema: DigestSchema = 2, **seal: Any
) -> Path:
    """Make a checkpoint of one array, its bytes written and digested in an order."""
    text = digest_text(value, order, schema)
    data = (value.transpose(order) if order else value).tobytes()
    draft = checkpoints / f"{DRAFT}{step}-test"
    draft.mkdir(parents=True)
    (draft / "weight").write_bytes(b"before" + data)
    place = ByteRange("weight", 6, len(data), text.rpartition(" ")[2] if schema == 1 else None)
    values = {"step": step, "metric": None, "saved_at": 1.0, "side": "torch", "spec_hash": "aa", "schema": schema}
    values |= {"leaves": {WEIGHT: text}, "places": {WEIGHT: (place,)}}
    commit(draft, checkpoints / str(step), Seal(**{**values, **seal}))
    return checkpoints / str(step)


@pytest.mark.parametrize("schemas", [(2, 2), (1, 2), (2, 1), (1, 1)])
@pytest.mark.parametrize("orders", ["different orders", "one order"])
@pytest.mark.parametrize("known", ["first", "second", "both"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_arrays_in_different_orders_or_schemas_are_equal_exactly_when_every_bit_is(
    value: Any, known: str, orders: str, schemas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a file holds the bytes as they are in memory."""
    monkeypatch.setattr("parity.state.leaf_blocks.BLOCK", 4)
    axes = (2, 3, 1, 0) if value.ndim == 4 else (1, 0)  # the former, JAX's of a convolution, is not its own inverse
    axes = axes if orders == "different orders" else ()
    nowhere: dict[str, Any] = {"places": {}}
    ours, theirs = schemas
    first = of_one_array(tmp_path, 1, value, (), ours, **({} if known != "second" else nowhere))
    second = of_one_array(tmp_path, 2, value, axes, theirs, **({} if known != "first" else nowhere))
    other = value.copy()
    other.reshape(-1)[-1] += 1
    third = of_one_array(tmp_path, 3, other, axes, theirs, **({} if known != "first" else nowhere))
    assert compare(first, second) == compare(second, first) == []
    assert [(d.leaf, d.kind) for d in compare(first, third)] == [(WEIGHT, "value")]
    assert [(d.leaf, d.kind) for d in compare(third, first)] == [(WEIGHT, "value")]


def test_without_the_bytes_anywhere_nothing_is_called_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = VALUES["matrix"]
    first, second = (of_one_array(tmp_path, n, value, axes, places={}) for n, axes in ((1, ()), (2, (1, 0))))
    assert [(d.leaf, d.kind) for d in compare(first, second)] == [(WEIGHT, "order")]
    third = of_one_array(tmp_path, 3, value, (), 1, places={})
    assert compare(first, third) == [], "the digest of one block follows from that of all bytes"
    monkeypatch.setattr("parity.state.leaf_blocks.BLOCK", 4)
    first = of_one_array(tmp_path, 4, value, (), places={})
    assert [(d.leaf, d.kind) for d in compare(first, third)] == [(WEIGHT, "schema")]


def test_an_array_without_elements_is_compared_across_schemas(tmp_path: Path) -> None:
    value = np.zeros((3, 0), np.float32)
    first, second = (of_one_array(tmp_path, schema, value, (), schema) for schema in (1, 2))
    assert compare(first, second) == []


def test_bytes_that_are_not_what_was_sealed_are_not_compared(tmp_path: Path) -> None:
    value = VALUES["matrix"]
    first, second = (of_one_array(tmp_path, n, value, axes) for n, axes in ((1, ()), (2, (1, 0))))
    flip(second / "weight", 7)
    with pytest.raises(DamagedError, match=f"2 is not what was sealed:\n  weight: the bytes of {WEIGHT} are others"):
        compare(first, second)
    (second / "weight").write_bytes(b"bef")
    with pytest.raises(DamagedError, match="the bytes of"):
        compare(first, second)
    (second / "weight").unlink()
    (second / "weight").symlink_to(first / "weight")
    with pytest.raises(CheckpointError, match="weight cannot be read"):
        compare(first, second)


LIES = [
    "float32[2,5]@1,0",
    "float32[2,0]@1,0",
    "float32[6]@1,0",
    "float32[2,3]@1,1",
    "float32[2,3]@0,1,2",
    "list@1,0",
]


@pytest.mark.parametrize("lie", LIES)
def test_a_seal_that_lies_about_the_shape_is_refused(lie: str, tmp_path: Path) -> None:
    """In schema 1; in schema 2 the seal itself is refused."""
    value = VALUES["matrix"]
    first = of_one_array(tmp_path, 1, value, (), places={})
    digest = digest_text(value, (1, 0), 1).rpartition(" ")[2]
    second = of_one_array(tmp_path, 2, value, (1, 0), 1, leaves={WEIGHT: f"{lie} {digest}"})
    with pytest.raises(CheckpointError, match=rf"2: {WEIGHT} cannot be '.*' and lie in 24 bytes"):
        compare(first, second)


# Across sides, on real trainers.


def saved(side: Any, spec: Any, directory: Path, state: Any) -> Path:
    trainer = side.build(spec, directory)
    trainer.import_state(state)
    trainer.save(None)
    trainer.close()
    return directory / "checkpoints" / str(trainer.step)


@pytest.mark.takes_seconds
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_of_one_state_have_equal_leaves_on_both_sides(
    name: str, precision: Precision, tmp_path: Path
) -> None:
    """Every leaf, in every precision: no leaf of the state is a side's own."""
    spec = small(name, precision, *overflowing(precision, 2))
    trainer = torch_side.build(spec)
    list(trainer.steps(3))
    state = trainer.export_state()
    ours, theirs = (saved(s, spec, tmp_path / s.__name__, state) for s in (jax_side, torch_side))
    assert compare(ours, theirs) == compare(theirs, ours) == []
    assert set(read_seal(ours).leaves) == {*state.arrays, *state.scalars}
    assert (read_seal(ours).side, read_seal(theirs).side) == ("jax", "torch")


def test_a_leaf_that_differs_across_sides_is_the_only_one_named(tmp_path: Path) -> None:
    spec = small("mlp-digits", "float64")
    state = torch_side.build(spec).export_state()
    leaf = "optimizer.second_moment.layers.1.weight"
    other = state.arrays[leaf].copy()
    other[0, 0] = 5e-324
    ours = saved(jax_side, spec, tmp_path / "jax", state)
    theirs = saved(torch_side, spec, tmp_path / "torch", with_leaf(state, leaf, other))
    assert [(d.leaf, d.kind, d.component) for d in compare(ours, theirs)] == [
        (leaf, "value", "optimizer.second_moment")
    ]


@pytest.mark.takes_seconds
def test_with_native_dropout_the_streams_are_all_that_differs(tmp_path: Path) -> None:
    spec = small("mlp-digits", "float64", "dropout.generator=native")
    paths = []
    for side in (jax_side, torch_side):
        trainer = side.build(spec, tmp_path / side.__name__)
        trainer.save(None)
        trainer.close()
        paths.append(tmp_path / side.__name__ / "checkpoints" / "0")
    differences = compare(*paths)
    assert {component_of(d.leaf) for d in differences} == {"rng"}
    assert {d.kind for d in differences if d.leaf.startswith("rng.native.jax.")} == {"missing"}
    assert [d.leaf for d in differences if d.kind == "extra"] == ["rng.native.torch_cpu"]
