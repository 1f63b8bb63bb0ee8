"""What a rule does to arrays, against NumPy, block by block, and the way back."""

import tomllib
from typing import Any

import numpy as np
import pytest

from parity.errors import CheckpointError
from parity.formats import InMemory
from parity.mapping import (
    Add,
    Cast,
    ConversionRule,
    ConversionRules,
    LeafRule,
    Permute,
    Reshape,
    RulePlacement,
    Stack,
    Times,
    Unstack,
    parse_rules,
    row_of,
    rules_text,
)

A = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
B = A + 1000

CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "permute": ({"permute": (2, 3, 1, 0)}, [A], [A.transpose(2, 3, 1, 0)]),
    "permute in a circle": ({"permute": (1, 2, 0)}, [A[0]], [A[0].transpose(1, 2, 0)]),
    "transpose": ({"transpose": True}, [A], [A.swapaxes(2, 3)]),
    "reshape": ({"reshape": (6, 20)}, [A], [A.reshape(6, 20)]),
    "permute and reshape": (
        {"permute": (3, 1, 0, 2), "reshape": (15, 8)},
        [A],
        [A.transpose(3, 1, 0, 2).reshape(15, 8)],
    ),
    "join": ({"join": 1}, [A, B[:, :2]], [np.concatenate([A, B[:, :2]], 1)]),
    "join and permute": (
        {"join": 0, "permute": (1, 2, 0)},
        [A[0], B[1]],
        [np.concatenate([A[0], B[1]]).transpose(1, 2, 0)],
    ),
    "view and permute": (
        {"view": (2, 3, 4, 5), "permute": (3, 1, 0, 2), "reshape": (5, 24)},
        [A.reshape(24, 5)],
        [A.transpose(3, 1, 0, 2).reshape(5, 24)],
    ),
    "join, view, transpose and split": (
        {"join": 0, "view": (2, 2, 3, 4, 5), "transpose": True, "reshape": (4, 3, 20), "split": (1, 3)},
        [A, B],
        [one.reshape(-1, 3, 20) for one in np.split(np.stack([A, B]).swapaxes(3, 4).reshape(4, 3, 20), [1])],
    ),
    "split": ({"split": (1, 3), "axis": 2}, [A], [A[:, :, :1], A[:, :, 1:]]),
    "scale": ({"scale": 0.5}, [A], [A * 0.5]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_does_what_numpy_does_and_leads_back(case: str) -> None:
    fields, given, expected = CASES[case]
    names = tuple(f"t{n}" for n in range(len(given)))
    paths = tuple(f"j{n}" for n in range(len(expected)))
    placement = RulePlacement(names, paths, ConversionRule(torch=names, jax=paths, **fields).rule)
    made = placement.forward([InMemory(value) for value in given])
    for one, value in zip(made, expected, strict=True):
        assert one.shape == value.shape
        assert b"".join(block.tobytes() for block in one.blocks(64)) == np.ascontiguousarray(value).tobytes()
    back = placement.backward([InMemory(one.load()) for one in made], [value.shape for value in given])
    for one, value in zip(back, given, strict=True):
        assert one.shape == value.shape
        assert b"".join(block.tobytes() for block in one.blocks(64)) == np.ascontiguousarray(value).tobytes()


@pytest.mark.parametrize("case", CASES)
def test_a_rule_leads_back_by_its_inverse_and_is_written_as_it_is_read(case: str) -> None:
    fields, given, expected = CASES[case]
    names = tuple(f"t{n}" for n in range(len(given)))
    paths = tuple(f"j{n}" for n in range(len(expected)))
    rule = ConversionRule(torch=names, jax=paths, **fields).rule
    shapes = [value.shape for value in given]
    back = rule.inverse(shapes)
    assert (back.source, back.target) == (paths, names)
    assert back.inverse([value.shape for value in expected]) == rule
    assert parse_rules("here", [row_of(rule)]) == [ConversionRule(torch=names, jax=paths, **fields)]
    assert [one.rule for one in parse_rules("here", tomllib.loads(rules_text([rule]))["rule"])] == [rule]


STARRED = LeafRule(("layers.*.w",), ("layers.w",), (Stack(0),))


def test_layers_that_were_stacked_are_taken_apart_again() -> None:
    names = tuple(f"layers.{n}.w" for n in range(3))
    assert [one.source for one in ConversionRules([STARRED]).place(names)] == [names]
    [placement] = ConversionRules([STARRED]).place(names)
    layers = [A[0, 0] + n for n in range(3)]
    made = placement.forward([InMemory(layer) for layer in layers])
    back = placement.backward(made, [layer.shape for layer in layers])
    assert [one.load().tolist() for one in back] == [layer.tolist() for layer in layers]
    assert read_back(rules_text([STARRED])) == [STARRED]


FUSED = ConversionRule(
    torch=("h.*.q", "h.*.k"), jax=("h.qk",), join=0, stack=1, permute=(2, 1, 0), reshape=(3, 2, 4)
).rule
"""Parts of each layer are joined, then the layers stacked: `[out, in]` of each to `[in, layers, out of both]`."""


def test_the_parts_of_each_layer_are_joined_before_layers_are_stacked() -> None:
    names = ["h.1.k", "h.0.q", "h.1.q", "h.0.k", "other"]
    taken, other = sorted(ConversionRules([FUSED]).place(names), key=lambda one: one.source == ("other",))
    assert (taken.source, taken.target) == (("h.0.q", "h.0.k", "h.1.q", "h.1.k"), ("h.qk",))
    assert other.source == ("other",)
    given = [np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3) + 10]
    given += [one + 100 for one in given]
    wanted = np.stack([np.concatenate(given[:2]), np.concatenate(given[2:])], 1).transpose(2, 1, 0)
    [made] = taken.forward([InMemory(one) for one in given])
    assert made.load().tolist() == wanted.tolist()
    back = taken.backward([made], [one.shape for one in given])
    assert [one.load().tolist() for one in back] == [one.tolist() for one in given]
    assert read_back(rules_text([FUSED])) == [FUSED]
    shapes = [one.shape for one in given]
    assert taken.rule.inverse(shapes).inverse([made.shape]).transforms == FUSED.transforms


def test_a_layer_without_one_of_its_parts_or_with_others_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"together, and h\.1\.k is not there"):
        ConversionRules([FUSED]).place(["h.0.q", "h.0.k", "h.1.q"])
    [placement] = ConversionRules([FUSED]).place(["h.0.q", "h.0.k", "h.1.q", "h.1.k"])
    with pytest.raises(CheckpointError, match=r"parts of \[2, 2\] and \[1, 3\] along axis 0"):
        placement.backward([InMemory(np.zeros((3, 2, 4)))], [(2, 3), (2, 3), (1, 3), (3, 3)])


def read_back(text: str) -> list[LeafRule]:
    return [row.rule for row in parse_rules("here", tomllib.loads(text)["rule"])]


def test_what_is_longer_than_what_was_joined_is_refused() -> None:
    rule = ConversionRule(torch=("q", "k"), jax=("qk",), join=0).rule
    placement = RulePlacement(rule.source, rule.target, rule)
    with pytest.raises(CheckpointError, match=r"q: parts \[2, 2\] do not make up float32\[5\] along axis 0"):
        placement.backward([InMemory(np.zeros(5, np.float32))], [(2,), (2,)])


def test_tied_names_are_one_array_and_lead_back_to_each() -> None:
    rule = ConversionRule(torch=("head", "embedding"), jax=("embedding",), tie=True, transpose=True).rule
    placement = RulePlacement(rule.source, rule.target, rule)
    one = InMemory(A[0, 0])
    [made] = placement.forward([one, one])
    assert [back.load().tolist() for back in placement.backward([made])] == [A[0, 0].tolist()] * 2
    assert rule.inverse().inverse() == rule
    with pytest.raises(CheckpointError, match="head and embedding are tied and differ"):
        placement.forward([one, InMemory(A[0])])


@pytest.mark.parametrize("held", [("head",), ("embedding",), ("head", "embedding")])
def test_any_of_tied_names_is_enough_where_a_file_leaves_the_others_out(held: tuple[str, ...]) -> None:
    rule = ConversionRule(torch=("head", "embedding"), jax=("words",), tie=True, transpose=True)
    [placement] = ConversionRules([rule]).place(held)
    array = np.arange(6.0).reshape(2, 3)
    [made] = placement.forward([InMemory(array)] * len(held))
    assert np.array_equal(made.load(), array.T)
    back = placement.backward([made], [array.shape] * len(held))
    assert placement.source == held
    assert [one.load().tolist() for one in back] == [array.tolist()] * len(held)


def test_names_that_are_joined_are_all_needed() -> None:
    rule = ConversionRule(torch=("q", "k"), jax=("qk",), join=0)
    with pytest.raises(CheckpointError, match=r"a rule takes q \+ k together, and k is not there"):
        ConversionRules([rule]).place(["q"])


@pytest.mark.parametrize(
    ("transforms", "shapes", "message"),
    [
        ((Add(),), [(2, 3)], "the rule of a is merging and has no way back"),
        ((Times(2.0), Cast("bfloat16")), [(2, 3)], "the rule of a is lossy and has no way back"),
        ((Reshape((6,)),), None, "the rule of a needs the shapes of its arrays for a way back"),
        ((Permute((0, 2, 1)), Reshape((6,))), [(2, 3)], r"permuted \[0, 2, 1\], .* does not fit arrays of \[2, 3\]"),
    ],
)
def test_a_rule_without_a_way_back_says_why(transforms: Any, shapes: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        LeafRule(("a",), ("b",), transforms).inverse(shapes)


ROWLESS = [
    (Reshape((6,)), Cast("bfloat16"), Permute((0,))),
    (Permute((0,)), Reshape((6,)), Permute((0,))),
    (Times(2.0, divides=True),),
    (Unstack(0, 2),),
]


@pytest.mark.parametrize("transforms", ROWLESS)
def test_a_rule_that_no_row_says_is_not_written(transforms: Any) -> None:
    with pytest.raises(CheckpointError, match=r"no row of RULES\.toml says: a "):
        row_of(LeafRule(("a",), ("b",), transforms))
