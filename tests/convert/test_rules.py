"""What a rule does to arrays, against NumPy, block by block, and the way back."""

from typing import Any

import numpy as np
import pytest

from parity.convert import ConversionRule, RulePlacement
from parity.formats import InMemory

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
    "split": ({"split": (1, 3), "axis": 2}, [A], [A[:, :, :1], A[:, :, 1:]]),
    "scale": ({"scale": 0.5}, [A], [A * 0.5]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_does_what_numpy_does_and_leads_back(case: str) -> None:
    fields, given, expected = CASES[case]
    names = tuple(f"t{n}" for n in range(len(given)))
    paths = tuple(f"j{n}" for n in range(len(expected)))
    placement = RulePlacement(names, paths, ConversionRule(torch=names, jax=paths, **fields))
    made = placement.forward([InMemory(value) for value in given])
    for one, value in zip(made, expected, strict=True):
        assert one.shape == value.shape
        assert b"".join(block.tobytes() for block in one.blocks(64)) == np.ascontiguousarray(value).tobytes()
    back = placement.backward([InMemory(one.load()) for one in made], [value.shape for value in given])
    for one, value in zip(back, given, strict=True):
        assert one.shape == value.shape
        assert b"".join(block.tobytes() for block in one.blocks(64)) == np.ascontiguousarray(value).tobytes()
