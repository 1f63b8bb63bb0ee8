"""Functions of single numbers that models are made of, by name: activations, and what may be taken of a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ACTIVATIONS", "TAKEN", "NumberFunction"]

NumberFunction: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _softplus(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.logaddexp(x, 0.0))


def _elu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772

ACTIVATIONS: Mapping[str, NumberFunction] = {
    "GELU (erf)": lambda x: 0.5 * x * (1.0 + _ERF(x / math.sqrt(2.0))),
    "GELU (tanh)": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "GELU (sigmoid of 1.702 x)": lambda x: x * _sigmoid(1.702 * x),
    "ReLU": lambda x: np.maximum(x, 0.0),
    "SiLU": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "ELU": _elu,
    "leaky ReLU of 0.01": lambda x: np.where(x > 0, x, 0.01 * x),
    "squared ReLU": lambda x: np.maximum(x, 0.0) ** 2,
    "softplus": _softplus,
    "nothing": lambda x: x,
    "leaky ReLU of 0.2": lambda x: np.where(x > 0, x, 0.2 * x),
    "leaky ReLU of 0.1": lambda x: np.where(x > 0, x, 0.1 * x),
    "SELU": lambda x: np.where(x > 0, _SELU_SCALE * x, _SELU_SCALE * _SELU_ALPHA * np.expm1(np.minimum(x, 0.0))),
    "hardswish": lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "hardsigmoid": lambda x: np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "hardtanh": lambda x: np.clip(x, -1.0, 1.0),
    "ReLU6": lambda x: np.clip(x, 0.0, 6.0),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "log sigmoid": lambda x: -_softplus(-x),
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "tanh shrink": lambda x: x - np.tanh(x),
    "exp": np.exp,
    "sine": np.sin,
}
"""What is applied to each number by itself, those first that are met most."""

TAKEN: Mapping[str, NumberFunction] = {
    "its square": np.square,
    "its root": np.sqrt,
    "its absolute value": np.abs,
    "its negative": np.negative,
    "its logarithm": np.log,
    "exp of half of it": lambda x: np.exp(0.5 * x),
    "exp of twice it": lambda x: np.exp(2.0 * x),
    "its inverse": lambda x: 1.0 / x,
    "one less it": lambda x: 1.0 - x,
}
"""What else may be taken of a value, and forgotten."""
