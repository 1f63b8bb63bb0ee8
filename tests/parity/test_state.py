"""Two leaves count as equal exactly when every bit and the type are, and a difference names its component."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from parity.state import (
    TrainingState,
    compare_digests,
    compare_states,
    component_of,
    digest_text,
    leaf_digests,
    memory_orders,
    order_of,
    orders_of,
    read_text,
    schema_of,
)
from tests.support.small import quick


def one(value: Any) -> TrainingState:
    return TrainingState(arrays={"model.params.w": value})


def digest(value: Any) -> str:
    return leaf_digests(one(value))["model.params.w"]


COMPONENTS = {
    "model.params.layers.0.weight": "model.params",
    "model.buffers.norms.0.running_var": "model.buffers",
    "optimizer.first_moment.layers.0.weight": "optimizer.first_moment",
    "optimizer.second_moment.head.bias": "optimizer.second_moment",
    "optimizer.momentum.convs.1.weight": "optimizer.momentum",
    "optimizer.step": "optimizer.step",
    "schedule.step": "schedule.step",
    "scaler.scale": "scaler.scale",
    "scaler.growth_tracker": "scaler.growth_tracker",
    "rng.data": "rng",
    "rng.native.jax.dropout.count": "rng",
    "data.position": "data.position",
    "counters.updates": "counters.updates",
    "best": "best",
    "config.spec": "config",
    "config.hash": "config",
}


@pytest.mark.parametrize(("leaf", "component"), COMPONENTS.items())
def test_every_leaf_belongs_to_a_component(leaf: str, component: str) -> None:
    assert component_of(leaf) == component


APART: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "dtype": (np.zeros(4, np.float32), np.zeros(2, np.float64)),
    "same bytes, other dtype": (np.zeros(4, np.float32), np.zeros(4, np.int32)),
    "bfloat16 and float16": (np.zeros(4, ml_dtypes.bfloat16), np.zeros(4, np.float16)),
    "shape": (np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)),
    "scalar and one element": (np.zeros((), np.float32), np.zeros(1, np.float32)),
    "empty shapes": (np.zeros((0, 2), np.float32), np.zeros((2, 0), np.float32)),
    "sign of zero": (np.array([0.0]), np.array([-0.0])),
    "payload of NaN": (
        np.array([0x7FF8 << 48], np.uint64).view(float),
        np.array([(0x7FF8 << 48) + 1], np.uint64).view(float),
    ),
    "sign of NaN": (np.array([np.nan]), -np.array([np.nan])),
    "last bit": (np.array([1.0]), np.array([np.nextafter(1.0, 2.0)])),
    "byte order": (np.array([1], "<i4"), np.array([1], ">i4")),
}


@pytest.mark.parametrize(("a", "b"), APART.values(), ids=APART)
def test_digests_tell_apart(a: np.ndarray, b: np.ndarray) -> None:
    assert digest(a) != digest(b)
    assert len(compare_states(one(a), one(b))) == 1


def test_memory_layout_does_not_matter() -> None:
    square = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest(square) == digest(np.asfortranarray(square)) == digest(np.repeat(square, 2, axis=0)[::2])


@pytest.mark.takes_seconds
@given(
    pair=npst.arrays(np.float64, npst.array_shapes(max_dims=3, max_side=4), elements=st.floats(width=64)).flatmap(
        lambda a: st.tuples(
            st.just(a), npst.arrays(np.float64, a.shape, elements=st.floats(width=64)) | st.just(a.copy())
        )
    )
)
@quick(150)
def test_digests_are_equal_exactly_when_all_bytes_are(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    assert (digest(a) == digest(b)) == (a.tobytes() == b.tobytes())
    assert (compare_states(one(a), one(b)) == []) == (a.tobytes() == b.tobytes())


SCALARS: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0.0, -0.0),
    (None, 0),
    ({"a": 1}, {"a": 1.0}),
    ({"a": None}, {}),
    ("x" * 100, "x" * 99 + "y"),
    (2**60, 2**60 + 1),
    (0.1, 0.1 + 2**-56),
]


@pytest.mark.parametrize(("a", "b"), SCALARS)
def test_scalars_are_told_apart_by_value_and_type(a: Any, b: Any) -> None:
    left, right = (TrainingState(arrays={}, scalars={"best": value}) for value in (a, b))
    assert compare_states(left, left) == []
    assert [d.component for d in compare_states(left, right)] == ["best"]


def test_the_order_of_keys_does_not_matter() -> None:
    left, right = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert compare_states(*(TrainingState(arrays={}, scalars={"best": v}) for v in (left, right))) == []


def test_differences_come_in_path_order_with_their_kind() -> None:
    a = {"a.x": "float32[2] 00", "b.x": "float32[2] 00", "c.x": "float32[2] 00", "d.x": "int 1"}
    b = {"a.x": "float32[2] 11", "b.x": "float32[3] 00", "e.x": "int 2", "d.x": "int 1"}
    found = compare_digests(a, b)
    assert [(d.leaf, d.kind) for d in found] == [
        ("a.x", "value"),
        ("b.x", "type"),
        ("c.x", "missing"),
        ("e.x", "extra"),
    ]
    assert "float32[2] 00 became float32[3] 00" in found[1].detail
    assert compare_digests(a, a) == []


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8])
def test_a_value_difference_has_its_largest_absolute_size(dtype: Any) -> None:
    (found,) = compare_states(one(np.array([1, 2, 3], dtype)), one(np.array([1, 4, 3.5], dtype)))
    assert (found.kind, found.component, found.max_abs) == ("value", "model.params", 2.0)


INFINITE: list[tuple[list[float], list[float], float]] = [
    ([np.inf, 1.0], [np.inf, 2.0], 1.0),
    ([-np.inf, 1.0], [np.inf, 1.0], np.inf),
    ([1.0, np.nan], [2.0, 5.0], np.nan),
]


@pytest.mark.parametrize(("a", "b", "largest"), INFINITE)
def test_states_with_infinities_are_compared_without_a_warning(a: Any, b: Any, largest: float) -> None:
    (found,) = compare_states(one(np.array(a)), one(np.array(b)))
    assert found.max_abs == pytest.approx(largest, nan_ok=True)


def test_a_type_difference_has_no_size() -> None:
    (found,) = compare_states(one(np.zeros(2, np.float32)), one(np.zeros(2, np.float64)))
    assert (found.kind, found.max_abs) == ("type", None)


def test_a_group_is_the_leaves_below_a_whole_name() -> None:
    state = TrainingState(arrays={"model.params.a.b": np.zeros(1), "model.parameters": np.ones(1)})
    assert list(state.group("model.params")) == ["a.b"]
    assert state.group("model.para") == {}


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_an_array_is_digested_in_the_order_its_bytes_have(axes: tuple[int, ...]) -> None:
    """The same array held in C order gives the same text when the order is named, and another when it is not."""
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    held = np.ascontiguousarray(value.transpose(axes)).transpose(np.argsort(axes))
    orders = memory_orders(one(held))
    assert orders == ({} if axes == (0, 1, 2) else {"model.params.w": axes})
    texts = leaf_digests(one(held), orders)
    assert orders_of(texts) == orders
    assert leaf_digests(one(value), orders_of(texts)) == texts
    assert (leaf_digests(one(value)) == texts) == (axes == (0, 1, 2))
    assert leaf_digests(one(held)) == leaf_digests(one(value)), "by default C order, whatever lies in memory"
    wrong = [d.kind for d in compare_digests(texts, leaf_digests(one(value)))]
    assert wrong == ([] if axes == (0, 1, 2) else ["order"])


@pytest.mark.parametrize(
    "value", [np.zeros((4, 6))[::2], np.zeros((4, 6))[:, 1:], np.broadcast_to(np.zeros(3), (2, 3))]
)
def test_an_array_with_gaps_has_no_order_of_its_own(value: Any) -> None:
    assert memory_orders(one(value)) == {}
    assert digest(value) == digest(value.copy())


@pytest.mark.parametrize("order", [(0,), (0, 0), (1, 2), (0, 1, 2)])
def test_an_order_that_is_none_of_the_axes_is_ignored(order: tuple[int, ...]) -> None:
    value = np.arange(6.0).reshape(2, 3)
    assert leaf_digests(one(value), {"model.params.w": order}) == leaf_digests(one(value))


def test_text_that_only_looks_like_an_order_is_none() -> None:
    assert [order_of(text) for text in ("str a@1,0 b", "list@1 x", "float32[2,3] @1,0", "")] == [()] * 4


@pytest.mark.parametrize("order", [(), (1, 0)])
@pytest.mark.parametrize("value", [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 2), np.float32)])
def test_texts_of_different_schemas_are_neither_equal_nor_of_different_values(value: Any, order: Any) -> None:
    first, second = (leaf_digests(one(value), {"model.params.w": order}, schema) for schema in (1, 2))
    assert [schema_of(texts["model.params.w"]) for texts in (first, second)] == [1, 2]
    assert first["model.params.w"] != second["model.params.w"]
    for a, b in ((first, second), (second, first), (first, leaf_digests(one(value + 1)))):
        assert [d.kind for d in compare_digests(a, b)] == ["schema"]
    other = leaf_digests(one(value.astype(np.float64)))
    assert [d.kind for d in compare_digests(first, other)] == ["type"]


def test_the_digests_of_schema_1_are_pinned() -> None:
    """Seals of schema 1 are read for ever."""
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest_text(value, schema=1) == "float32[3,4] bdb3f41b7b694e4bb6d47b1326c96fde"
    assert digest_text(value, (1, 0), 1) == "float32[3,4]@1,0 1d1ead76c44e65090ffabc6a0ea9a780"


TEXTS = {
    "float32[2,3]@1,0 blocks " + "0" * 32: ("float32", (2, 3), (1, 0), 2),
    ">i4[] " + "0" * 32: (">i4", (), (), 1),
    "int 3": None,
    "float32[2,3]@1,1 " + "0" * 32: None,
    "float32[2,3] blocks " + "0" * 31: None,
    "float32[2,3]  blocks " + "0" * 32: None,
    'str "float32[2,3] blocks"': None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_an_array_is_read_and_of_nothing_else(text: str) -> None:
    assert read_text(text) == TEXTS[text]
