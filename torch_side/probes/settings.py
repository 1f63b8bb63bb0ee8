"""Other settings of a call of PyTorch that make an output of the same shape: what a port may have otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["other_settings"]

_DIMS = {"softmax", "log_softmax", "cumsum", "normalize", "layer_norm", "logsumexp", "flip", "argmax", "sort"}
"""Functions of an axis whose result has the shape of what they are given, whichever axis it is."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "reduction": ("mean", "sum"),
    "padding_mode": ("zeros", "border", "reflection"),
}

FURTHEST = 8
"""Places by which something may be moved otherwise."""

_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_CONV_PLACES = ("stride", "padding", "dilation", "groups")


def other_settings(
    kind: str, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return other settings of a call, each in words.

    Args:
        kind: Name of the function.
        args: Its arguments by position.
        named: All its arguments by the keys under which they are replaced.
    """
    return (
        *_plain(kind, args, named),
        *_without(args, named),
        *_convolved(kind, args, named),
        *_ends(kind, args, named),
        *_assumed(kind, args, named),
        *_sliced(kind, args),
    )


_ASSUMED: Mapping[str, tuple[tuple[str, bool], ...]] = {
    "avg_pool1d": (("count_include_pad", True), ("ceil_mode", False)),
    "avg_pool2d": (("count_include_pad", True), ("ceil_mode", False)),
    "interpolate": (("align_corners", False),),
}
"""Settings that a call may leave out, with what they are then."""


def _sliced(kind: str, args: tuple[Any, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the same places of another axis, where places of one axis alone are taken; of another shape then."""
    if kind != "__getitem__" or len(args) < 2 or not isinstance(args[0], torch.Tensor):
        return
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    cut = [at for at, one in enumerate(index) if one != slice(None)]
    if len(cut) != 1 or not all(isinstance(one, slice) for one in index):
        return
    for axis in range(args[0].ndim):
        if axis != cut[0]:
            turned = (*(slice(None),) * axis, index[cut[0]])
            yield f"places of axis {cut[0]}|of axis {axis}", {"1": turned}


def _assumed(kind: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield settings that are not given, another way of interpolating, and shifts the other way round."""
    for key, value in _ASSUMED.get(kind, ()):
        if key not in named and len(args) < 5:
            yield f"{key} {value}|{not value}", {key: not value}
    if kind == "interpolate" and isinstance(named.get("mode"), str):
        for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
            if mode != named["mode"]:
                corners = {"align_corners": None} if mode.startswith("nearest") else {}
                yield f"mode {named['mode']!r}|{mode!r}", {"mode": mode, **corners}
    if kind == "roll":
        key = "shifts" if "shifts" in named else "1"
        shifts = named.get(key)
        if isinstance(shifts, int | tuple | list):
            places = (shifts,) if isinstance(shifts, int) else tuple(shifts)
            yield "shifts as they are|the other way round", {key: tuple(-one for one in places)}
            yield "shifts as they are|of none", {key: (0,) * len(places)}
            for other in range(-FURTHEST, FURTHEST + 1) if len(places) == 1 else ():
                if other not in (0, *places):
                    yield f"shifts of {places[0]}|{other}", {key: (other,)}


def _without(args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a call without a tensor that is given by its key, as masks and weights of classes are."""
    for key, value in named.items():
        if isinstance(value, torch.Tensor) and not key.isdigit() and not (args and value is args[0]):
            yield f"{key} as it is|none", {key: None}


def _plain(kind: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    first = args[0] if args and isinstance(args[0], torch.Tensor) else None
    for key, value in named.items():
        for word in _WORDS.get(key, ()):
            if isinstance(value, str) and word != value:
                yield f"{key} {value!r}|{word!r}", {key: word}
        if isinstance(value, bool) and key in (
            "unbiased",
            "keepdim",
            "count_include_pad",
            "align_corners",
            "ceil_mode",
        ):
            yield f"{key} {value}|{not value}", {key: not value}
        if key == "correction" and value in (0, 1):
            yield f"correction {value}|{1 - value}", {key: 1 - value}
        if first is not None and kind in _DIMS and (key == "dim" or key == "1") and _is_whole(value):
            for axis in range(first.ndim):
                if axis != value % max(first.ndim, 1):
                    yield f"axis {value % first.ndim}|{axis}", {key: axis}
    if kind in ("var", "std", "var_mean", "std_mean") and "correction" not in named and "unbiased" not in named:
        yield "the divisor n - 1|n", {"correction": 0}
    if kind == "gelu" and "approximate" not in named:
        yield "approximate 'none'|'tanh'", {"approximate": "tanh"}
    if kind in ("tril", "triu"):
        at = int(named.get("1", named.get("diagonal", 0)))
        key = "1" if "1" in named else "diagonal"
        for other in (at - 1, at + 1, 0):
            if other != at:
                yield f"diagonal {at}|{other}", {key: other}
    if kind == "scaled_dot_product_attention" or "is_causal" in named:
        causal = bool(named.get("is_causal", False))
        if named.get("attn_mask") is None:
            yield f"is_causal {causal}|{not causal}", {"is_causal": not causal}


def _convolved(kind: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield other dilations of a convolution, with the padding that keeps its shape and as it is; other paddings.

    Words without a number are those of a mistake that is made for each convolution of a stack by its own numbers.
    """
    axes = _CONVOLUTIONS.get(kind)
    if axes is None or len(args) < 2:
        return
    keys = {word: str(3 + at) if str(3 + at) in named else word for at, word in enumerate(_CONV_PLACES)}
    size = [int(n) for n in args[1].shape[2:]]
    dilation = _spread(named.get(keys["dilation"], 1), axes)
    padding = named.get(keys["padding"], 0)
    yield from _strides(keys["stride"], named, axes)
    if isinstance(padding, str) or dilation is None or (padded := _spread(padding, axes)) is None:
        return
    for other in range(1, 9):
        if all(one == other for one in dilation):
            continue
        more = [(other - one) * (n - 1) for one, n in zip(dilation, size, strict=True)]
        if all(extra % 2 == 0 and pad + extra // 2 >= 0 for extra, pad in zip(more, padded, strict=True)):
            new = {
                keys["dilation"]: [other] * axes,
                keys["padding"]: [p + e // 2 for p, e in zip(padded, more, strict=True)],
            }
            yield f"dilation {dilation[0]}|{other}", new
        yield f"dilation {dilation[0]}|{other}, padded as it is", {keys["dilation"]: [other] * axes}
    if any(one > 1 for one in dilation):
        yield "its dilation|none, padded as it is", {keys["dilation"]: [1] * axes}
        if all(p % d == 0 for p, d in zip(padded, dilation, strict=True)) and any(padded):
            less = [p // d for p, d in zip(padded, dilation, strict=True)]
            yield "padding for its dilation|as for none", {keys["padding"]: less}
            more = [p * d for p, d in zip(padded, dilation, strict=True)]
            yield "padding as for no dilation|for its dilation", {keys["padding"]: more}
    for other in range(max((d * (n - 1) for d, n in zip(dilation, size, strict=True)), default=0) + 1):
        if any(one != other for one in padded):
            yield f"padding {padded if axes > 1 else padded[0]}|{other}", {keys["padding"]: [other] * axes}


def _strides(key: str, named: Mapping[str, Any], axes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield other strides; of another shape then, which a mean over all places hides, or another layer makes up."""
    own = _spread(named.get(key, 1), axes)
    if own is None or len(set(own)) != 1:
        return
    for other in (1, 2):
        if other != own[0]:
            yield f"stride {own[0]}|{other}", {key: [other] * axes}


def _ends(kind: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield other numbers of places that the ends of an axis are padded with, and as many at the other end."""
    key = next((key for key in ("pad", "1") if key in named), "")
    amounts = named.get(key)
    if kind != "pad" or not isinstance(amounts, list | tuple) or not all(map(_is_whole, amounts)):
        return
    for at in range(0, len(amounts) - 1, 2):
        low, high = amounts[at : at + 2]
        total = low + high
        found = [
            (high, low),
            (total - total // 2, total // 2),
            (total // 2, total - total // 2),
            (total, 0),
            (0, total),
        ]
        found += [(low + by, high) for by in (-2, -1, 1, 2)] + [(low, high + by) for by in (-2, -1, 1, 2)]
        found += [(low // by, high // by) for by in (2, 4)] + [(low * by, high * by) for by in (2, 3, 4)]
        for two in dict.fromkeys(found):
            if two != (low, high) and min(two) >= 0 and total > 0:
                new = [*amounts[:at], *two, *amounts[at + 2 :]]
                yield f"{low} and {high} places at the ends|{two[0]} and {two[1]}", {key: new}


def _spread(value: Any, axes: int) -> list[int] | None:
    if _is_whole(value):
        return [int(value)] * axes
    if isinstance(value, list | tuple) and all(map(_is_whole, value)):
        return [int(one) for one in value] * (axes if len(value) == 1 else 1)
    return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
