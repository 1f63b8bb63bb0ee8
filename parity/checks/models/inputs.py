"""Inputs of two models: described by a text, taken from the user's own module, or assumed from the first layer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.contract import Inputs
from parity.errors import SpecError

__all__ = ["BothInputs", "both_inputs", "described"]

_TEXT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<kind>[fib])\[(?P<shape>[\d, ]*)\](?:<(?P<below>\d+))?"
    r"(?:->\[(?P<axes>[\d, ]*)\])?"
)


@dataclass(frozen=True)
class BothInputs:
    """What each of two models is called with."""

    first: Inputs
    second: Inputs
    note: str = ""


def both_inputs(given: object) -> BothInputs:
    """Return what both models are called with, from a value or a function of the user.

    Args:
        given: A function without arguments that returns, or itself: an array, a tuple of arrays and plain values, a
            mapping of names to these, or a mapping of `first` and `second`, or `torch` and `jax`, to such.

    Raises:
        SpecError: It is something else.
    """
    value = given() if callable(given) else given
    if isinstance(value, Mapping):
        for one, other in (("first", "second"), ("torch", "jax")):
            if set(value) == {one, other}:
                return BothInputs(_inputs(value[one]), _inputs(value[other]))
    return BothInputs(_inputs(value), _inputs(value))


def described(texts: Sequence[str], seed: int = 0) -> BothInputs:
    """Return random inputs as texts describe them.

    Args:
        texts: One for each input: `f[2,8]` for float64 of a standard normal distribution, `i[2,16]<65` for int64 from
            0 to 64, `b[2,16]` for bool; `NAME=` before it gives it by name, and `->[0,2,3,1]` after it gives the
            second model its axes in another order.
        seed: Of the draws.

    Raises:
        SpecError: A text that is not one of these.

    Example:
        >>> made = described(["i[2,4]<9", "f[1,3,2,2]->[0,2,3,1]"])
        >>> [one.shape for one in made.first], [one.shape for one in made.second]
        ([(2, 4), (1, 3, 2, 2)], [(2, 4), (1, 2, 2, 3)])
    """
    rng = np.random.default_rng([5, seed])
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    for at, text in enumerate(texts):
        found = _TEXT.fullmatch(text.replace(" ", ""))
        if found is None:
            raise SpecError(
                "inputs",
                f"expected MODULE:NAME, or one like f[2,8], i[2,16]<65 or b[2,16] for each input, got {text!r}",
            )
        shape = _numbers(found["shape"])
        if found["kind"] == "i":
            if not found["below"] or int(found["below"]) < 1:
                raise SpecError("inputs", f"{text!r} needs what its integers are below, such as i[2,16]<65")
            value: Any = rng.integers(0, int(found["below"]), shape)
        else:
            value = rng.standard_normal(shape) if found["kind"] == "f" else rng.random(shape) < 0.5
        axes = _numbers(found["axes"]) if found["axes"] is not None else tuple(range(len(shape)))
        if sorted(axes) != list(range(len(shape))):
            raise SpecError("inputs", f"{text!r}: {list(axes)} does not name its {len(shape)} axes")
        name = found["name"] or str(at)
        first[name], second[name] = value, np.transpose(value, axes)
    named = [name for name in first if not name.isdigit()]
    if named and len(named) < len(first):
        raise SpecError("inputs", "give either all inputs a name, or none")
    return BothInputs(first, second) if named else BothInputs(tuple(first.values()), tuple(second.values()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one)


def _inputs(value: Any) -> Inputs:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_plain(one) for one in value)
    return (_plain(value),)


def _plain(value: Any) -> Any:
    """Return an array of any framework as one of NumPy, and plain values as they are."""
    if isinstance(value, np.ndarray | bool | int | float | str | None):
        return value
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise SpecError("inputs", f"expected arrays and plain values, got {type(value).__name__}")
