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
