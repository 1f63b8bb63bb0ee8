"""Other parameters of an equation that make an output of the same shape: what a port may have otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax import lax

__all__ = ["other_parameters"]

MOST_DILATION = 8


def other_parameters(eqn: Any) -> tuple[tuple[str, dict[str, object]], ...]:
    """Return other parameters of an equation, each in words: `what this|other`."""
    name = eqn.primitive.name
    if name == "conv_general_dilated":
        return tuple(_convolved(eqn))
    if name == "integer_pow":
        return tuple((f"power {eqn.params['y']}|{y}", {"y": y}) for y in (1, 2, 3, 4, -1, -2) if y != eqn.params["y"])
    if name in ("cumsum", "cumprod", "cummax", "cumlogsumexp"):
        own, turned = eqn.params["axis"], eqn.params["reverse"]
        axes = [axis for axis in range(len(eqn.outvars[0].aval.shape)) if axis != own]
        found: list[tuple[str, dict[str, object]]] = [(f"axis {own}|{axis}", {"axis": axis}) for axis in axes]
        ends = ("end", "start") if turned else ("start", "end")
        found.append((f"from the {ends[0]}|from the {ends[1]}", {"reverse": not turned}))
        return tuple(found)
    if name == "slice":
        return tuple(_moved(eqn))
    return ()


def _moved(eqn: Any) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield slices of as many places, one further or one before."""
    low, high = eqn.params["start_indices"], eqn.params["limit_indices"]
    for axis, size in enumerate(eqn.invars[0].aval.shape):
        for by in (-1, 1):
            if low[axis] + by >= 0 and high[axis] + by <= size:
                ends = [tuple(one + by * (at == axis) for at, one in enumerate(side)) for side in (low, high)]
                yield (f"places from {low[axis]} on of axis {axis}|from {low[axis] + by} on",
                       {"start_indices": ends[0], "limit_indices": ends[1]})  # fmt: skip


def _convolved(eqn: Any) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield other strides, other paddings, and other dilations with the padding that keeps the shape."""
    params = eqn.params
    padding, dilation = tuple(params["padding"]), tuple(params["rhs_dilation"])
    spec = params["dimension_numbers"]
    assert isinstance(spec, lax.ConvDimensionNumbers)
    sizes = [eqn.invars[1].aval.shape[at] for at in spec.rhs_spec[2:]]
    strides = tuple(params["window_strides"])
    for step in (1, 2) if len(set(strides)) == 1 else ():
        if step != strides[0]:
            yield f"stride {strides[0]}|{step}", {"window_strides": (step,) * len(strides)}
    for other in (_ends(padding, how) for how in ("before", "after", "both", "both, more before")):
        if other != padding:
            yield f"padding {list(padding)}|{list(other)}", {"padding": other}
    for spread in range(1, MOST_DILATION + 1):
        if all(one == spread for one in dilation):
            continue
        more = [(spread - one) * (size - 1) for one, size in zip(dilation, sizes, strict=True)]
        for how in ("as it is", "both", "before"):
            new = []
            for (low, high), extra in zip(padding, more, strict=True):
                before = extra // 2 if how == "both" else extra if how == "before" or high == 0 else 0
                new.append((low + before, high + extra - before))
            if all(low >= 0 and high >= 0 for low, high in new):
                yield (f"dilation {dilation[0]}|{spread}",
                       {"rhs_dilation": (spread,) * len(dilation), "padding": tuple(new)})  # fmt: skip


def _ends(padding: tuple[tuple[int, int], ...], how: str) -> tuple[tuple[int, int], ...]:
    """Return a padding of as many places, at other ends."""
    found = []
    for low, high in padding:
        total = low + high
        half = total // 2 if how == "both" else total - total // 2
        found.append({"before": (total, 0), "after": (0, total)}.get(how, (half, total - half)))
    return tuple(found)
