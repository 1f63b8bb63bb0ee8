"""TrainingState: the neutral form of everything that must survive a stop."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity.errors import StateError

__all__ = [
    "Difference",
    "TrainingState",
    "compare_digests",
    "compare_states",
    "component_of",
    "digest_text",
    "leaf_digests",
    "memory_orders",
    "order_of",
    "orders_of",
    "take_count",
    "take_scale",
]


MAX_COUNT = 1 << 53
"""Counts stay below, so that every format holds them exactly."""

Order = tuple[int, ...]
"""Axes of an array, slowest first: `a.transpose(order)` is in C order. Empty for C order itself."""

DIGEST_LENGTH = 32
"""Hex digits of an XXH3-128 digest."""

_ORDER = re.compile(r"[^\s@]*@([0-9]{1,2}(?:,[0-9]{1,2}){1,15}) ")


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Canonical leaf paths to arrays and to JSON values.

    | leaves | type |
    |---|---|
    | `model.params.<name>`, `model.buffers.<name>` | arrays, PyTorch layout |
    | `optimizer.<slot>.<name>` | arrays, `first_moment`, `second_moment`, `momentum` |
    | `optimizer.step`, `schedule.step` | int: applied updates, completed steps |
    | `scaler.scale`, `scaler.growth_tracker` | float, int; only with a loss scaler |
    | `rng.init`, `rng.data`, `rng.dropout` | the seeds of the counter-based streams |
    | `rng.native.<stream>` | arrays; only with native dropout |
    | `data.position` | JSON object |
    | `counters.step`, `counters.updates`, `counters.epoch`, `counters.skips_in_row` | int |
    | `best` | JSON object (metric, step), or null before the first validation |
    | `config.spec`, `config.hash` | resolved spec as TOML, hash over what gives it meaning |
    """

    arrays: Mapping[str, NDArray[np.generic]]
    scalars: Mapping[str, Any] = field(default_factory=dict)

    def group(self, prefix: str) -> dict[str, NDArray[np.generic]]:
        """Return the arrays below a prefix, keyed by the rest of their path."""
        start = prefix + "."
        return {k.removeprefix(start): v for k, v in self.arrays.items() if k.startswith(start)}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One leaf in which two states differ."""

    leaf: str
    component: str
    kind: str
    """`missing` (only the first state has it), `extra`, `type`, `value`, or `order` (of the bytes digested)."""
    detail: str
    max_abs: float | None = None
    """Largest absolute difference of numeric leaves of equal type."""


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


def leaf_digests(state: TrainingState, orders: Mapping[str, Order] | None = None) -> dict[str, str]:
    """Return leaf path to `type digest`; two leaves are equal bit for bit if and only if the texts are.

    The digest is XXH3-128 over the bytes; the type of an array is its dtype and shape, and `@axes` when they were
    not taken in C order. Leaves digested in different orders cannot be told apart or equal by their texts.

    Args:
        state: What is digested.
        orders: Leaf path to the order in which its bytes are taken; C order for all others.

    Example:
        >>> state = TrainingState(arrays={"model.params.w": np.zeros((2, 3), np.float32)})
        >>> leaf_digests(state, {"model.params.w": (1, 0)})["model.params.w"].split()[0]
        'float32[2,3]@1,0'
    """
    out = {}
    for leaf, value in state.arrays.items():
        out[leaf] = digest_text(value, (orders or {}).get(leaf, ()))
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


def digest_text(value: NDArray[np.generic], order: Order = ()) -> str:
    """Return `type digest` of one array, its bytes taken in an order; one that is none of its axes is ignored."""
    kind = f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if order and sorted(order) == list(range(value.ndim)):
        value, kind = value.transpose(order), f"{kind}@{','.join(map(str, order))}"
    return f"{kind} {xxhash.xxh3_128_hexdigest(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)}"


def compare_digests(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    """Return the leaves in which two sets of leaf digests differ, in path order.

    Leaves digested in different orders are named with kind `order`: nothing is known of their values.
    """
    out = []
    for leaf in sorted({*a, *b}):
        left, right = a.get(leaf), b.get(leaf)
        if left == right:
            continue
        if left is None or right is None:
            kind, detail = ("extra", f"only in the second: {right}") if left is None else ("missing", f"was {left}")
        else:
            (before, value), (after, other) = left.split(" ", 1), right.split(" ", 1)
            kind = "value" if before == after else "type"
            if kind == "type" and before.partition("@")[0] == after.partition("@")[0]:
                kind = "order"
            digests = len(value) == len(other) == DIGEST_LENGTH and before == after
            detail = f"{before} of another value" if digests else f"{left} became {right}"
        out.append(Difference(leaf=leaf, component=component_of(leaf), kind=kind, detail=detail))
    return out


def compare_states(a: TrainingState, b: TrainingState) -> list[Difference]:
    """Return the leaves in which two states differ bit for bit, with the largest absolute difference."""
    out = []
    for difference in compare_digests(leaf_digests(a), leaf_digests(b)):
        left, right = (s.arrays.get(difference.leaf) for s in (a, b))
        if difference.kind == "value" and left is not None and right is not None:
            with np.errstate(invalid="ignore"):  # infinity minus infinity
                gap = np.where(left == right, 0.0, np.abs(left.astype(np.float64) - right.astype(np.float64)))
            worst = math.nan if np.isnan(gap).any() else float(gap.max(initial=0.0))
            difference = Difference(
                leaf=difference.leaf,
                component=difference.component,
                kind="value",
                detail=f"differs by up to {worst:.3g}",
                max_abs=worst,
            )
        out.append(difference)
    return out


def take_count(scalars: dict[str, Any], leaf: str) -> int:
    """Remove a counter from the scalars of a state and return it.

    Raises:
        StateError: It is missing, or no integer of at least 0.
    """
    value = _take(scalars, leaf)
    if type(value) is not int or not 0 <= value < MAX_COUNT:
        shown = repr(value)[:40] if type(value) is not int or abs(value) < MAX_COUNT else "more than any run has"
        raise StateError(leaf, f"expected a count of at least 0, got {shown}")
    return value


def take_scale(scalars: dict[str, Any], leaf: str) -> float:
    """Remove a loss scale from the scalars of a state and return it.

    Raises:
        StateError: It is missing, or no finite float above 0.
    """
    value = _take(scalars, leaf)
    if type(value) is not float or not 0.0 < value < math.inf:
        raise StateError(leaf, f"expected a finite scale above 0, got {value!r}")
    return value


def _take(scalars: dict[str, Any], leaf: str) -> Any:
    if leaf not in scalars:
        raise StateError(leaf, "is missing")
    return scalars.pop(leaf)
