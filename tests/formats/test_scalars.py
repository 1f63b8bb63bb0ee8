"""Scalars in the documents of trees: every bit comes back; what is spelled otherwise is refused by each document."""

import json
import math
from typing import Any

import pytest

from parity.checkpoints.trees.document import from_json, to_json
from parity.checkpoints.trees.nodes import LeafNode
from parity.errors import CheckpointError
from parity.formats import MOST_BITS, decode_tree, encode_tree

COMMON = [None, True, 0, -1, 1 << 53, (1 << MOST_BITS) - 1, 0.5, -0.0, 5e-324, math.inf, -math.inf, "", "ü\u2028", 1j]
LONG = [1 << MOST_BITS, -(1 << 5000), b"", bytes(range(256))]


def unresolved(reference: dict[str, Any]) -> None:
    raise KeyError("array")


@pytest.mark.parametrize("value", [*COMMON, *LONG])
def test_a_scalar_beside_arrays_comes_back(value: Any) -> None:
    back = decode_tree(json.loads(json.dumps(encode_tree(value, None))), unresolved, "f")  # type: ignore[arg-type]
    assert (type(back), repr(back)) == (type(value), repr(value)) if value not in LONG else back == value


@pytest.mark.parametrize("value", COMMON)
def test_a_scalar_of_a_checkpoint_comes_back(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(LeafNode("x", value)))), "x")
    assert isinstance(back, LeafNode)
    assert (type(back.value), repr(back.value)) == (type(value), repr(value))


REFUSED = {
    "a finite float": ({"float": "1.0"}, "spelled in another way"),
    "infinity in another spelling": ({"float": "Infinity"}, "spelled in another way"),
    "a float that is a number": ({"float": 1}, "spelled in another way"),
    "half a complex number": ({"complex": ["0x0.0p+0"]}, "expected 2"),
    "a complex number in decimal digits": ({"complex": ["1.0", "0x0.0p+0"]}, "spelled in another way"),
    "an exponent beyond float64": ({"complex": ["0x1p+99999", "0x0.0p+0"]}, "too large"),
    "a short integer": ({"int": "0x5"}, "spelled in another way"),
    "bytes that are none": ({"bytes": "a"}, "base64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_scalar_that_is_spelled_otherwise_is_refused(case: str) -> None:
    value, message = REFUSED[case]
    with pytest.raises(CheckpointError, match=message):
        decode_tree([value], unresolved, "f")
    with pytest.raises(CheckpointError, match=message):
        from_json({"list": [value]})


@pytest.mark.parametrize("value", [{"bytes": "YWI="}, {"int": hex(1 << 1000)}])
def test_what_no_leaf_of_a_checkpoint_is_is_refused_there(value: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="no scalar"):
        from_json({"list": [value]})
