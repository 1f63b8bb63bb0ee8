"""Likely causes of a parting inside an attention with turned, shared or shifted keys: rotary places, groups, masks.

Both models' values are made again, from projections that agree, by each of the ways below, as in `attention_causes`,
which knows neither turns nor groups. A cause is named only if both are made to within rounding and one difference
explains them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from parity.checks.models.attention_causes import attention_phrase
from parity.checks.models.fitting import Float64s

__all__ = ["grouped_cause"]

_LARGEST = 2**17
"""Scores of a head of one sample, times the width, as of 32 places of 128: above, the ways are not tried."""

_BASES = (1e4, 5e5, 1e6, 1e2, 5e2, 1e3, 1e5)
"""Of the periods of turns: of the first Llama, of the third, and of Qwen, then of small models and of code."""

_AHEAD = {"causal": 0, "causal, one place ahead": 1, "causal, one place behind": -1, "none": None}


@dataclass(frozen=True)
class _GroupedWay:
    """One way to attend with keys and values that several heads share."""

    heads: int
    turned: str
    """Which numbers of a head make a pair that is turned; `not` where none are."""
    base: float
    """Of the periods of the turns."""
    turns: int
    """1, or -1 where they go the other way."""
    shift: int
    """Places by which the keys are further than the queries."""
    shared: str
    """How keys and values are spread over the heads."""
    scale: str
    mask: str


def grouped_cause(befores: Sequence[Float64s], first: Float64s, second: Float64s) -> str:
    """Return what two attentions do differently with the same q, k and v; empty where that is not known.

    Args:
        befores: What agrees in both, the nearest first: one fused projection of [batch, time, widths of q, k, v], or
            three one after the other, those of k and v perhaps narrower.
        first: What one model made of it, float64[batch, time, width], before the projection of the output.
        second: What the other made of it.
    """
    parts = _projections(befores, first.shape) if first.ndim == 3 else None
    return attention_phrase(parts, first, second, _LARGEST, _tried, _differences)


def _projections(befores: Sequence[Float64s], shape: tuple[int, ...]) -> list[Float64s] | None:
    """Return q, k and v in the order in which they were made; None where they are not to be seen."""
    batch, time, width = shape
    flat = [one.reshape(batch, time, -1) for one in befores[:3] if one.ndim >= 3 and one.shape[:2] == (batch, time)]
    if not flat:
        return None
    shared, odd = divmod(flat[0].shape[-1] - width, 2)
    if not odd and 0 < shared <= width and width % shared == 0:
        return [np.asarray(one) for one in np.split(flat[0], (width, width + shared), axis=-1)]
    widths = [one.shape[-1] for one in flat[::-1]]
    if len(flat) == 3 and widths[0] == width and widths[1] == widths[2] and width % widths[1] == 0:
        return flat[::-1]
    return None


def _tried(parts: Sequence[Float64s], only: _GroupedWay | None = None) -> Iterator[tuple[_GroupedWay, Float64s]]:
    """Yield every way, or one of them, with what it makes, [batch, time, width]."""
    width, narrow = parts[0].shape[-1], parts[1].shape[-1]
    for heads in [only.heads] if only else [n for n in range(1, width + 1) if width % n == 0]:
        size = width // heads
        if narrow % size:
            continue
        groups = narrow // size
        spreads = ("in turn", "in blocks") if 1 < groups < heads else ("",)
        kinds = [("not", 0.0, 1, 0)]
        if size % 2 == 0:
            kinds += list(itertools.product(("halves", "neighbours"), _BASES, (1, -1), (0, 1, -1)))
        for kind in kinds:
            q, k, v = (one.reshape(*one.shape[:2], -1, size) for one in parts)
            q, k = _turned(q, kind[0], kind[1], kind[2], 0), _turned(k, *kind)
            for shared, (scale, factor), mask in itertools.product(spreads, _scales(width, size), _AHEAD):
                way = _GroupedWay(heads, *kind, shared, scale, mask)
                if only is None or way == only:
                    shown = _spread(k, heads, shared), _spread(v, heads, shared)
                    yield way, _attended(q, shown[0], shown[1], factor, _AHEAD[mask])


def _turned(x: Float64s, how: str, base: float, turns: int, shift: int) -> Float64s:
    """Return heads, [batch, time, heads, size], with pairs of their numbers turned by their place."""
    if how == "not":
        return x
    size = x.shape[-1]
    angles = turns * np.outer(np.arange(x.shape[1]) + shift, base ** (-np.arange(0, size, 2) / size))[:, None]
    halves = how == "halves"
    left, right = (x[..., : size // 2], x[..., size // 2 :]) if halves else (x[..., ::2], x[..., 1::2])
    cos, sin = np.cos(angles), np.sin(angles)
    both = (left * cos - right * sin, right * cos + left * sin)
    return np.concatenate(both, -1) if halves else np.stack(both, -1).reshape(x.shape)


def _spread(x: Float64s, heads: int, shared: str) -> Float64s:
    """Return what groups of heads share, for each head."""
    each = heads // x.shape[2]
    return np.tile(x, (1, 1, each, 1)) if shared == "in turn" else np.repeat(x, each, 2)


def _scales(width: int, size: int) -> list[tuple[str, float]]:
    named = {f"1/sqrt({size})": size**-0.5, f"1/sqrt({width})": width**-0.5, "none": 1.0}
    return [(name, factor) for name, factor in named.items() if name == f"1/sqrt({size})" or factor != size**-0.5]


def _attended(q: Float64s, k: Float64s, v: Float64s, factor: float, ahead: int | None) -> Float64s:
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * factor
    if ahead is not None:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool), ahead), scores, -np.inf)
    with np.errstate(all="ignore"):  # a place that sees none makes no number, which fits nothing
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(q.shape[0], q.shape[1], -1)


_WORDS = {
    "heads": "{} heads",
    "turned": "rotary of {}",
    "base": "base of the rotary {:g}",
    "turns": "rotary turns by {} times the place",
    "shift": "rotary of keys {} places further than of queries",
    "shared": "groups of heads share keys {}",
    "scale": "scale of the scores {}",
    "mask": "mask {}",
}


def _differences(a: _GroupedWay, b: _GroupedWay) -> list[str]:
    """Return what differs in two ways, as phrases; of one that turns nothing nothing else of turns is said."""
    names = [one.name for one in fields(a) if getattr(a, one.name) != getattr(b, one.name)]
    if "turned" in names and "not" in (a.turned, b.turned):
        names = [name for name in names if name not in ("base", "turns", "shift")]
    shown = [(_WORDS[name].format(getattr(a, name)), getattr(b, name), name) for name in names]
    return [f"{text} here, {value:g} there" if name == "base" else f"{text} here, {value} there"
            for text, value, name in shown]  # fmt: skip
