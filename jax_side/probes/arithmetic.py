"""Equations of a trace by NumPy, those that most models are made of: none is compiled for a few numbers.

What is not here is computed by JAX. Results are those of JAX to within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_numpy"]

_ERF = np.vectorize(math.erf, otypes=[np.float64])
_ERFC = np.vectorize(math.erfc, otypes=[np.float64])

_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "pow": np.power, "atan2": np.arctan2, "neg": np.negative, "sign": np.sign, "abs": np.abs, "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin,
    "cos": np.cos, "sqrt": np.sqrt, "square": np.square, "floor": np.floor, "ceil": np.ceil, "erf": _ERF,
    "erfc": _ERFC, "rsqrt": lambda x: 1.0 / np.sqrt(x), "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "stop_gradient": lambda x: x, "copy": lambda x: x, "copy_p": lambda x: x, "is_finite": np.isfinite,
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "ne": np.not_equal, "not": np.logical_not, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip
_LOGICAL = ("not", "and", "or", "xor")

_REDUCED: Mapping[str, Callable[..., Any]] = {
    "reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod, "reduce_and": np.all,
    "reduce_or": np.any,
}  # fmt: skip

_CUMULATED: Mapping[str, Callable[..., Any]] = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax":
                                                np.maximum.accumulate}  # fmt: skip


def by_numpy(name: str, params: Mapping[str, Any], values: Sequence[NDArray[Any]]) -> list[NDArray[Any]] | None:
    """Return what an equation gives; None where it is not one of those that are here.

    Args:
        name: Of its primitive.
        params: Of the equation.
        values: What it is given, floating arrays in float64.
    """
    with np.errstate(all="ignore"):
        made = _single(name, params, values)
    if made is not None:
        return [np.asarray(made)]
    if name == "split":
        cuts = np.cumsum([int(n) for n in params["sizes"]])[:-1]
        return list(np.split(values[0], cuts, axis=params["axis"]))
    return None


def _single(name: str, params: Mapping[str, Any], values: Sequence[NDArray[Any]]) -> Any:
    if name in _ELEMENTWISE:
        if name in _LOGICAL and any(one.dtype != bool for one in values):
            return None  # of whole numbers they are of bits
        return _ELEMENTWISE[name](*values)
    if name == "div" and all(one.dtype.kind == "f" for one in values):
        return np.divide(*values)
    if name == "integer_pow":
        return np.power(values[0], params["y"]) if values[0].dtype.kind == "f" else None
    if name == "select_n" and len(values) == 3 and values[0].dtype == bool:
        return np.where(values[0], values[2], values[1])
    if name == "clamp":
        return np.minimum(np.maximum(values[1], values[0]), values[2])
    if name in _REDUCED:
        return _REDUCED[name](values[0], axis=tuple(params["axes"]))
    if name in _CUMULATED and not params["reverse"]:
        return _CUMULATED[name](values[0], axis=params["axis"])
    return _laid_out(name, params, values)


def _laid_out(name: str, params: Mapping[str, Any], values: Sequence[NDArray[Any]]) -> Any:
    if name == "broadcast_in_dim" and len(values) == 1:
        shape, places = params["shape"], params["broadcast_dimensions"]
        kept = [values[0].shape[places.index(at)] if at in places else 1 for at in range(len(shape))]
        return np.broadcast_to(values[0].reshape(kept), shape)
    if name == "reshape" and params.get("dimensions") is None and len(values) == 1:
        return values[0].reshape(params["new_sizes"])
    if name == "transpose":
        return values[0].transpose(params["permutation"])
    if name == "squeeze":
        return np.squeeze(values[0], tuple(params["dimensions"]))
    if name == "expand_dims":
        return np.expand_dims(values[0], tuple(params["dimensions"]))
    if name == "concatenate":
        return np.concatenate(values, axis=params["dimension"])
    if name == "slice":
        steps = params["strides"] or (1,) * values[0].ndim
        cuts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
        return values[0][tuple(slice(low, high, step) for low, high, step in cuts)]
    if name == "rev":
        return np.flip(values[0], tuple(params["dimensions"]))
    if name == "iota":
        shape, at = params["shape"], params["dimension"]
        line = np.arange(shape[at], dtype=np.dtype(params["dtype"]))
        return np.broadcast_to(line.reshape([-1 if axis == at else 1 for axis in range(len(shape))]), shape)
    if name == "convert_element_type":
        kind = np.dtype(params["new_dtype"])
        return values[0].astype(np.float64 if kind.kind == "f" else kind) if kind.kind in "biuf" else None
    if name == "dot_general" and all(one.dtype == np.float64 for one in values):
        return _product(values[0], values[1], params["dimension_numbers"])
    return None


def _product(a: NDArray[Any], b: NDArray[Any], numbers: Any) -> NDArray[Any]:
    """Return the sum of products over some axes of both, batch axes first."""
    (over_a, over_b), (batch_a, batch_b) = numbers
    free_a = [at for at in range(a.ndim) if at not in (*over_a, *batch_a)]
    free_b = [at for at in range(b.ndim) if at not in (*over_b, *batch_b)]
    shape = [a.shape[at] for at in (*batch_a, *free_a)] + [b.shape[at] for at in free_b]
    inner = math.prod(a.shape[at] for at in over_a)
    lead = [a.shape[at] for at in batch_a]
    left = a.transpose((*batch_a, *free_a, *over_a)).reshape(*lead, -1, inner)
    right = b.transpose((*batch_b, *over_b, *free_b)).reshape(*lead, inner, -1)
    return np.matmul(left, right).reshape(shape)
