"""Islands: where a model asks PyTorch for less than float64 though all that it is given is float64."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from parity.contract import Island

__all__ = ["Islands"]

_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
_HARD_SIGMOIDS = ("hardsigmoid", "hardsigmoid_")
_OURS = ("torch_side", "torch")
"""Packages whose frames are no place in a model."""


class Islands(TorchFunctionMode):
    """Note each request for a narrow type, and answer it in float64 where that is asked for.

    These are the casts by which libraries leave float64: `Tensor.float` and `Tensor.to(torch.float32)` in the norms
    of Llama and T5 and in the losses of transformers, `softmax(..., dtype=torch.float32)` in its attentions. A result
    that is narrow in spite of it, though an argument was float64, is noted as not lifted. PyTorch's own `hardsigmoid`
    has its slope of 1/6 in float32 on the way back (torch 2.13: gradients 5e-9 off); it is computed from a clamp.

    Args:
        lift: Whether narrow types are answered in float64.
        in_graph: Whether only casts count through which a gradient will go: those of a forward pass, and not those of
            an update, which keeps its parameters or moments in a narrow type on purpose.
    """

    def __init__(self, *, lift: bool, in_graph: bool = False) -> None:
        super().__init__()
        self.lift, self.in_graph = lift, in_graph
        self._found: dict[tuple[str, str, bool], Island] = {}

    @property
    def found(self) -> tuple[Island, ...]:
        """Return what was noted, each place once."""
        return tuple(self._found.values())

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of PyTorch, its narrow types replaced."""
        given = dict(kwargs or {})
        wide = any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args)
        asked = func in _CASTS or any(isinstance(one, torch.dtype) and one in _NARROW for one in _flat(args, given))
        if asked and self.in_graph:
            tracked = any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
            asked = tracked and torch.is_grad_enabled()
        if asked and wide:
            self._note(func, self.lift)
        if asked and self.lift:
            if func in _CASTS:
                return torch.Tensor.double(args[0])
            args = tuple(torch.float64 if _narrow(one) else one for one in args)
            given = {name: torch.float64 if _narrow(one) else one for name, one in given.items()}
        if wide and self.lift and getattr(func, "__name__", "") in _HARD_SIGMOIDS:
            self._note(func, True)
            made = torch.clamp(args[0] + 3.0, 0.0, 6.0) / 6.0
            return args[0].copy_(made) if func.__name__.endswith("_") or given.get("inplace") else made
        made = func(*args, **given)
        if wide and self.lift and isinstance(made, torch.Tensor) and made.dtype in _NARROW:
            self._note(func, False)
        return made

    def _note(self, func: Any, lifted: bool) -> None:
        what = getattr(func, "__qualname__", getattr(func, "__name__", str(func)))
        where = _place()
        self._found.setdefault((where, what, lifted), Island(where, what, lifted))


def _flat(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    return [*args, *kwargs.values()]


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _NARROW


def _place() -> str:
    """Return file, line and function of the nearest frame that is of a model."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
    code = frame.f_code
    module = frame.f_globals.get("__name__", "?")
    return f"{module}:{frame.f_lineno} {code.co_qualname}"
