"""Digests of the leaves of a state, as texts: what a seal records, and what two states are compared by.

There are two schemas. In schema 1 the digest of an array is the XXH3-128 of all of its bytes; in schema 2 it is made
of the digests of blocks (`parity.state.leaf_blocks`), and its text has the word `blocks`. Texts of different
schemas say nothing about each other's values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity.state.leaf_blocks import MARK, LeafDigest, Order, array_type, block_shape
from parity.state.leaf_values import LeafSize, measure_arrays
from parity.state.training_state import TrainingState

__all__ = [
    "SCHEMA",
    "ArrayText",
    "Difference",
    "DigestSchema",
    "compare_digests",
    "compare_states",
    "component_of",
    "digest_text",
    "in_schema_2",
    "leaf_digests",
    "memory_orders",
    "order_of",
    "orders_of",
    "read_text",
    "schema_of",
]

DigestSchema = Literal[1, 2]

SCHEMA: DigestSchema = 2
"""What new digests are made by."""

DIGEST_LENGTH = 32
"""Hex digits of an XXH3-128 digest."""

_DIGEST = re.compile(rf"(?:{MARK})?[0-9a-f]{{{DIGEST_LENGTH}}}")
_ORDER = re.compile(r"[^\s@]*@([0-9]{1,2}(?:,[0-9]{1,2}){1,15}) ")
_ARRAY = re.compile(
    r"([^\s@\[]+)\[((?:[0-9]{1,15}(?:,[0-9]{1,15}){0,63})?)\](?:@([0-9]{1,2}(?:,[0-9]{1,2}){1,63}))? "
    rf"({MARK})?([0-9a-f]{{{DIGEST_LENGTH}}})"
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One leaf in which two states differ."""

    leaf: str
    component: str
    kind: str
    """`missing` (only the first state has it), `extra`, `type`, `value`, or `order` or `schema` (of the digests)."""
    detail: str
    max_abs: float | None = None
    """Largest absolute difference of numeric leaves of equal type."""
    size: LeafSize | None = None
    """By how much the values differ; None where they are not known."""


def component_of(leaf: str) -> str:
    """Return the component a leaf belongs to, as `suspects` names it.

    Example:
        >>> component_of("optimizer.first_moment.layers.0.weight")
        'optimizer.first_moment'
        >>> component_of("rng.native.torch_cpu")
        'rng'
    """
    group, _, rest = leaf.partition(".")
    if group in ("rng", "best", "config"):
        return group
    return f"{group}.{rest.partition('.')[0]}" if rest else group


def leaf_digests(
    state: TrainingState, orders: Mapping[str, Order] | None = None, schema: DigestSchema = SCHEMA
) -> dict[str, str]:
    """Return leaf path to `type digest`; two leaves are equal bit for bit if and only if the texts are.

    The type of an array is its dtype and shape, and `@axes` when its bytes were not digested in C order. Texts of
    different orders or schemas are neither equal nor different values.

    Args:
        state: The state to digest.
        orders: Leaf path to the order in which its bytes are taken; C order for all others.
        schema: The schema of the digests of arrays; texts of other values are the same in both.

    Example:
        >>> state = TrainingState(arrays={"model.params.w": np.zeros((2, 3), np.float32)})
        >>> leaf_digests(state, {"model.params.w": (1, 0)})["model.params.w"].split()[:2]
        ['float32[2,3]@1,0', 'blocks']
    """
    out = {leaf: digest_text(value, (orders or {}).get(leaf, ()), schema) for leaf, value in state.arrays.items()}
    for leaf, item in state.scalars.items():
        text = json.dumps(item, sort_keys=True)
        out[leaf] = f"{type(item).__name__} {text if len(text) <= 40 else xxhash.xxh3_128_hexdigest(text.encode())}"
    return out


def memory_orders(state: TrainingState) -> dict[str, Order]:
    """Return the arrays that lie in memory with their axes in another order, so that no byte moves to digest them."""
    found = {}
    for leaf, value in state.arrays.items():
        if not value.flags.c_contiguous:
            order = tuple(sorted(range(value.ndim), key=lambda axis: -value.strides[axis]))
            if value.transpose(order).flags.c_contiguous:
                found[leaf] = order
    return found


def order_of(text: str) -> Order:
    """Return the order in which a leaf was digested.

    Example:
        >>> order_of("float32[2,3]@1,0 5f2a"), order_of("float32[2,3] 5f2a"), order_of("int 3")
        ((1, 0), (), ())
    """
    match = _ORDER.match(text)
    return tuple(map(int, match[1].split(","))) if match else ()


def orders_of(leaves: Mapping[str, str]) -> dict[str, Order]:
    """Return the orders in which leaves were digested, for digesting others the same way."""
    return {leaf: order for leaf, text in leaves.items() if (order := order_of(text))}


def schema_of(text: str) -> DigestSchema:
    """Return the schema of the digest of an array.

    Example:
        >>> schema_of("float32[2,3] blocks 5f2a"), schema_of("float32[2,3]@1,0 5f2a")
        (2, 1)
    """
    return 2 if text.partition(" ")[2].startswith(MARK) else 1


class ArrayText(NamedTuple):
    """What the text of an array says."""

    dtype: str
    shape: tuple[int, ...]
    order: Order
    schema: DigestSchema


def read_text(text: str) -> ArrayText | None:
    """Return what the text of a leaf says of an array; None if it is not the text of an array.

    Example:
        >>> read_text("float32[2,3]@1,0 blocks " + "5f" * 16)
        ArrayText(dtype='float32', shape=(2, 3), order=(1, 0), schema=2)
    """
    match = _ARRAY.fullmatch(text)
    if match is None:
        return None
    shape, order = (tuple(map(int, part.split(","))) if part else () for part in match.group(2, 3))
    if order and sorted(order) != list(range(len(shape))):
        return None
    return ArrayText(match[1], shape, order, schema_of(text))


def in_schema_2(text: str) -> str:
    """Return the text of an array of one block in schema 2, from either schema; any other text as it is.

    The digest of its only block is that of all of its bytes, which is the one of schema 1.

    Example:
        >>> value = np.arange(6, dtype=np.float32).reshape(2, 3)
        >>> in_schema_2(digest_text(value, schema=1)) == digest_text(value)
        True
    """
    array = read_text(text)
    if array is None or array.schema == 2 or block_shape(array.shape, array.order) != array.shape:
        return text
    kind, _, digest = text.partition(" ")
    return f"{kind} {MARK}{xxhash.xxh3_128_hexdigest(bytes.fromhex(digest) if math.prod(array.shape) else b'')}"


def digest_text(value: NDArray[np.generic], order: Order = (), schema: DigestSchema = SCHEMA) -> str:
    """Return `type digest` of one array, its bytes taken in an order.

    Args:
        value: The array, in any memory layout.
        order: Its axes, slowest first; empty for C order, as is one that does not name each axis once.
        schema: The schema of the digest.

    Example:
        >>> digest_text(np.zeros((2, 3), np.float32)) == digest_text(np.zeros((2, 3), np.float32, order="F"))
        True
    """
    if sorted(order) != list(range(value.ndim)):
        order = ()
    if schema == 2 and block_shape(value.shape, order) != value.shape:
        leaf = LeafDigest(value.shape, value.dtype, order)
        leaf.add((0,) * value.ndim, value)
        return leaf.text()
    data = np.ascontiguousarray(value.transpose(order) if order else value).reshape(-1).view(np.uint8).data
    digest = xxhash.xxh3_128(data)
    blocks = MARK + xxhash.xxh3_128_hexdigest(digest.digest() if value.size else b"")
    return f"{array_type(value.dtype, value.shape, order)} {digest.hexdigest() if schema == 1 else blocks}"


def compare_digests(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    """Return the leaves in which two sets of leaf digests differ, in path order.

    Leaves digested in different orders, or by different schemas, are named with kind `order` or `schema`: nothing is
    known of their values.

    Args:
        a: Leaf path to text, as `leaf_digests` returns them.
        b: Those of the other state.

    Example:
        >>> first, second = {"counters.step": "int 3"}, {"counters.step": "int 4"}
        >>> [difference.detail for difference in compare_digests(first, second)]
        ['int 3 became int 4']
    """
    out = []
    for leaf in sorted({*a, *b}):
        left, right = a.get(leaf), b.get(leaf)
        if left == right:
            continue
        if left is None or right is None:
            kind, detail = ("extra", f"only in the second: {right}") if left is None else ("missing", f"was {left}")
        else:
            kind, before = _kind(left, right), left.partition(" ")[0]
            digests = kind == "value" and all(_DIGEST.fullmatch(t.partition(" ")[2]) for t in (left, right))
            detail = f"{before} of another value" if digests else f"{left} became {right}"
        out.append(Difference(leaf=leaf, component=component_of(leaf), kind=kind, detail=detail))
    return out


def _kind(left: str, right: str) -> str:
    """Return in what two texts of a leaf differ."""
    before, after = left.partition(" ")[0], right.partition(" ")[0]
    if before.partition("@")[0] != after.partition("@")[0]:
        return "type"
    if schema_of(left) != schema_of(right):
        return "schema"
    return "order" if before != after else "value"


def compare_states(a: TrainingState, b: TrainingState) -> list[Difference]:
    """Return the leaves in which two states differ bit for bit, with the largest absolute difference.

    Args:
        a: The state that counts as the expected one.
        b: The other; a leaf that it alone has is of kind `extra`, one that it lacks `missing`.

    Numerics: differences are taken in float64; the largest is NaN where an element of either state is.

    Example:
        >>> a, b = (TrainingState(arrays={"model.params.w": np.array(value)}) for value in ([1.0, 2.0], [1.0, 2.5]))
        >>> [(difference.leaf, difference.max_abs) for difference in compare_states(a, b)]
        [('model.params.w', 0.5)]
    """
    out = []
    for difference in compare_digests(leaf_digests(a), leaf_digests(b)):
        left, right = (s.arrays.get(difference.leaf) for s in (a, b))
        if difference.kind == "value" and left is not None and right is not None:
            with np.errstate(invalid="ignore"):  # infinity minus infinity
                gap = np.where(left == right, 0.0, np.abs(left.astype(np.float64) - right.astype(np.float64)))
            worst = math.nan if np.isnan(gap).any() else float(gap.max(initial=0.0))
            detail, size = f"differs by up to {worst:.3g}", measure_arrays(left, right)
            difference = replace(difference, detail=detail, max_abs=worst, size=size)
        out.append(difference)
    return out
