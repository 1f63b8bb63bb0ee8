"""The JSON document of a tree: its containers, the types of its arrays, and its scalars, bit for bit."""

from __future__ import annotations

import re
from typing import Any, get_args

from parity.checkpoints.trees.nodes import ArrayType, Branch, Form, LeafNode, Node, Scalar, is_text, join
from parity.errors import CheckpointError, explain
from parity.formats import MOST_BITS, are_keys, decode_scalar, encode_scalar, is_spelled

__all__ = ["DTYPES", "from_json", "holds_json", "is_scalar", "to_json"]

DTYPES = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4"),
        *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float8_e3m4", "float8_e4m3b11fnuz"),
    }
)
"""Names of the types of arrays that are saved; the same in NumPy, JAX and PyTorch."""

MOST_DEPTH = 200
_KEY = re.compile(r"[A-Za-z0-9_]{1,40}")


def is_scalar(value: Any) -> bool:
    """Return whether a value is saved as it is: None, a bool, an integer, a float, a complex number or text."""
    if type(value) is int:
        return value.bit_length() <= MOST_BITS
    if type(value) is str:
        return is_text(value)
    return value is None or type(value) in (bool, float, complex)


def to_json(node: Node) -> dict[str, Any]:
    """Return the document of a tree, of which each leaf is a scalar or the type of an array."""
    if isinstance(node, Branch):
        items = [to_json(child) for child in node.children]
        if node.form in ("list", "tuple"):
            return {node.form: items}
        named = [[key, item] for key, item in zip(node.keys, items, strict=True)]
        return {"dict": named} if node.form == "dict" else {"fields": named, "type": node.type_name}
    assert isinstance(node, LeafNode)
    value = node.value
    if isinstance(value, ArrayType):
        more: dict[str, Any] = {"key": value.key} if value.key else {}
        return {"array": value.dtype, "shape": list(value.shape), **more, **({"numpy": True} if value.numpy else {})}
    found = encode_scalar(value)
    return found if isinstance(found, dict) else {"value": found}


def from_json(document: Any, name: str = "") -> Node:
    """Return the tree that a document describes; rebuilding it gives plain dicts, lists and tuples.

    Args:
        document: What `to_json` returned.
        name: Name of the tree.

    Raises:
        CheckpointError: It is no such document.
    """
    try:
        return _node(document, name, 0)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the description of its tree cannot be read: {explain(error)}") from error


def holds_json(node: Node) -> bool:
    """Return whether a tree is what JSON holds exactly: dicts with keys of text, lists, and finite scalars."""
    if isinstance(node, Branch):
        plain = node.form == "list" or (node.form == "dict" and all(type(key) is str for key in node.keys))
        return plain and all(map(holds_json, node.children))
    value = node.value if isinstance(node, LeafNode) else None
    return not isinstance(value, ArrayType) and not isinstance(encode_scalar(value), dict)


def _node(value: Any, name: str, depth: int) -> Node:
    if type(value) is not dict or depth > MOST_DEPTH:
        raise TypeError(f"{name!r} is no node, or lies too deep")
    form = next((form for form in get_args(Form) if form in value), None)
    if form is None:
        return LeafNode(name, _array(value, name) if "array" in value else _scalar(value, name))
    pairs = value[form] if form in ("dict", "fields") else list(enumerate(value[form]))
    keys = tuple(key for key, _ in pairs)
    if not are_keys(keys):
        raise TypeError(f"{name!r} has keys that are no text, or one twice")
    children = tuple(_node(item, join(name, key), depth + 1) for key, item in pairs)
    if form in ("list", "tuple"):
        return Branch(name, form, keys, children, list if form == "list" else tuple)
    kind = str(value.get("type", ""))
    return Branch(name, form, keys, children, lambda made: dict(zip(keys, made, strict=True)), kind)


def _array(value: dict[str, Any], name: str) -> ArrayType:
    shape = value["shape"]
    if value["array"] not in DTYPES or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape) or len(shape) > 32:
        raise ValueError(f"{name!r} has the type {str(value['array'])[:40]!r}{str(shape)[:80]}")
    key = value.get("key", "")
    if key and (_KEY.fullmatch(key) is None or value["array"] != "uint32" or not shape):
        raise ValueError(f"{name!r} is no PRNG key")
    return ArrayType(value["array"], tuple(shape), key, value.get("numpy") is True)


def _scalar(value: dict[str, Any], name: str) -> Scalar:
    found: Scalar = decode_scalar(value) if is_spelled(value) else value["value"]
    if not is_scalar(found):
        raise TypeError(f"{name!r} is no scalar")
    return found
