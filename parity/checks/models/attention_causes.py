"""Likely causes of a parting inside an attention: how one must weigh q, k and v to make each model's values of them.

Both models' values are made again, from projections that agree, by each of the ways below. A cause is named only if
both are made to within rounding and one difference of the ways explains them; a way that is not here gives no cause.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parity.checks.models.fitting import Float64s, HowMade, what_differs

__all__ = ["attention_cause", "attention_phrase"]

_LARGEST = 2**21
"""Scores of a head of one sample, times the width, as of 64 places of 512: above, the ways are not tried."""

_AXES = {"keys": -1, "queries": -2, "heads": -3}
_ROLES = tuple(itertools.permutations(range(3)))


@dataclass(frozen=True)
class _AttentionWay:
    """One way to attend."""

    roles: tuple[int, ...]
    """Which of the three projections is q, k and v."""
    heads: int
    scale: str
    causal: bool
    axis: str
    """Over what the softmax sums to one."""
    joined: str
    """How the heads are laid in one axis."""


def attention_cause(befores: Sequence[Float64s], first: Float64s, second: Float64s) -> str:
    """Return what two attentions do differently with the same q, k and v; empty where that is not known.

    Args:
        befores: What agrees in both, the nearest first: one fused projection of [batch, time, 3 width], or three of
            [batch, time, width] one after the other.
        first: What one model made of it, float64[batch, time, width], before the projection of the output.
        second: What the other made of it.
    """
    parts = _projections(befores, first.shape) if first.ndim == 3 else None
    return attention_phrase(parts, first, second, _LARGEST, _tried, _differences)


def attention_phrase(
    parts: Sequence[Float64s] | None,
    first: Float64s,
    second: Float64s,
    largest: int,
    tried: Callable[[Sequence[Float64s], HowMade | None], Iterator[tuple[HowMade, Float64s]]],
    differences: Callable[[HowMade, HowMade], list[str]],
) -> str:
    """Return what two attentions do differently, as a cause; empty where that is not known or too much to try.

    Args:
        parts: q, k and v, which agree in both; None where they are not to be seen.
        first: What one model made of them, float64[batch, time, width].
        second: What the other made of them.
        largest: Scores of a head of one sample, times the width, above which no way is tried.
        tried: As of `what_differs`.
        differences: As of `what_differs`.
    """
    if parts is None or first.shape != second.shape or first.shape[1] ** 2 * first.shape[2] > largest:
        return ""
    phrase = what_differs(parts, first, second, tried, differences)
    return f"attention: {phrase}" if phrase else ""


def _projections(befores: Sequence[Float64s], shape: tuple[int, ...]) -> list[Float64s] | None:
    """Return the three projections in the order in which they were made; None where they are not to be seen."""
    batch, time, width = shape
    flat = [one.reshape(batch, time, -1) for one in befores[:3] if one.ndim >= 3 and one.shape[:2] == (batch, time)]
    if flat and flat[0].shape[-1] == 3 * width:
        return [np.asarray(one) for one in np.split(flat[0], 3, axis=-1)]
    if len(flat) == 3 and all(one.shape == shape for one in flat):
        return flat[::-1]
    return None


def _tried(parts: Sequence[Float64s], only: _AttentionWay | None) -> Iterator[tuple[_AttentionWay, Float64s]]:
    """Yield every way, or those of one's number of heads, with what it makes, [batch, time, width]."""
    batch, time, width = parts[0].shape
    mask = np.tril(np.ones((time, time), bool))
    for count in [only.heads] if only else [n for n in range(1, width + 1) if width % n == 0]:
        split = [one.reshape(batch, time, count, -1).transpose(0, 2, 1, 3) for one in parts]
        for roles in _ROLES:
            q, k, v = (split[at] for at in roles)
            scores = q @ k.swapaxes(-1, -2)
            for (scale, factor), causal, axis in itertools.product(_scales(width, count), (True, False), _AXES):
                if axis == "heads" and (count == 1 or causal):
                    continue  # a place that no head sees has no softmax over heads
                with np.errstate(all="ignore"):
                    y = _softmax(np.where(mask, scores * factor, -np.inf) if causal else scores * factor, axis) @ v
                for joined, order in (("head by head", (0, 2, 1, 3)), ("interleaved", (0, 2, 3, 1))):
                    way = _AttentionWay(roles, count, scale, causal, axis, joined)
                    yield way, y.transpose(order).reshape(batch, time, width)


def _scales(width: int, heads: int) -> list[tuple[str, float]]:
    size = width // heads
    named = {
        f"1/sqrt({size})": size**-0.5,
        f"1/sqrt({width})": width**-0.5,
        "none": 1.0,
        f"1/{size}": 1.0 / size,
    }
    found: dict[float, str] = {}
    for name, factor in named.items():
        found.setdefault(factor, name)
    return [(name, factor) for factor, name in found.items()]


def _softmax(scores: Float64s, axis: str) -> Float64s:
    at = _AXES[axis]
    powers = np.exp(scores - scores.max(at, keepdims=True))
    return np.asarray(powers / powers.sum(at, keepdims=True))


def _differences(a: _AttentionWay, b: _AttentionWay) -> list[str]:
    """Return what differs in two ways, as phrases."""
    found = []
    moved = [name for name, one, other in zip("qkv", a.roles, b.roles, strict=True) if one != other]
    if moved:
        found.append(f"{' and '.join(moved)} exchanged")
    if a.heads != b.heads:
        found.append(f"{a.heads} heads here, {b.heads} there")
    if a.scale != b.scale:
        found.append(f"scale of the scores {a.scale} here, {b.scale} there")
    if a.causal != b.causal:
        found.append(f"causal mask {'here, none there' if a.causal else 'there, none here'}")
    if a.axis != b.axis:
        found.append(f"softmax over {a.axis} here, over {b.axis} there")
    if a.joined != b.joined:
        found.append(f"heads joined {a.joined} here, {b.joined} there")
    return found
