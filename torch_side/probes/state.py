"""A training state of PyTorch as named arrays: modules, optimizers with their rates, containers, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parity.contract import StateView

__all__ = ["view_of"]

MODEL = "model"
"""Slot of the module that was given to the trainer."""

DEEPEST = 6
"""Objects inside one another that are looked into."""


def view_of(state: Any, module: nn.Module, leaves: Sequence[str]) -> StateView:
    """Return a copy of what a state holds.

    Args:
        state: What the user's `start` or `step` returned.
        module: The model that was given to `start`.
        leaves: Names of its parameters and running statistics that are looked at.
    """
    walk = _TensorWalk(module, leaves)
    walk.visit("", state, 0)
    if not any(slot == MODEL for slot, _ in walk.owned.values()):
        walk.visit(MODEL, module, 0)
    return StateView(walk.arrays, walk.owned, MODEL, walk.kinds)


class _TensorWalk:
    def __init__(self, module: nn.Module, leaves: Sequence[str]) -> None:
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.names = {id(held[leaf]): leaf for leaf in leaves}
        self.arrays: dict[str, NDArray[Any]] = {}
        self.owned: dict[str, tuple[str, str]] = {}
        self.kinds: dict[str, str] = {}
        self.seen: set[int] = set()

    def keep(self, path: str, value: Any, owner: tuple[str, str] | None = None) -> None:
        if isinstance(value, torch.Tensor):
            self.kinds[path] = str(value.dtype).removeprefix("torch.")
            wide = value.detach().double() if value.is_floating_point() else value.detach()
            self.arrays[path] = wide.cpu().numpy().copy()
        elif isinstance(value, np.ndarray | np.generic):
            self.kinds[path] = str(value.dtype)
            self.arrays[path] = np.array(value, np.float64 if np.issubdtype(value.dtype, np.floating) else None)
        else:
            self.kinds[path] = type(value).__name__
            self.arrays[path] = np.asarray(value)
        if owner is not None:
            self.owned[path] = owner

    def visit(self, path: str, value: Any, deep: int) -> None:
        if isinstance(value, torch.Tensor | np.ndarray | np.generic | int | float) and not isinstance(value, bool):
            leaf = self.names.get(id(value))
            self.keep(path or "state", value, None if leaf is None else (MODEL, leaf))
            return
        if value is None or isinstance(value, str | bytes | bool | type) or deep > DEEPEST or id(value) in self.seen:
            return
        self.seen.add(id(value))
        dot = f"{path}." if path else ""
        if isinstance(value, nn.Module):
            for name, one in (*value.named_parameters(), *value.named_buffers()):
                self.visit(f"{dot}{name}", one, deep)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(dot, value)
        elif isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            return  # what it does is in the rates of its optimizer
        elif isinstance(value, Mapping):
            for key, one in value.items():
                self.visit(f"{dot}{key}", one, deep + 1)
        elif isinstance(value, list | tuple):
            for at, one in enumerate(value):
                self.visit(f"{dot}{at}", one, deep + 1)
        elif hasattr(value, "__dict__") and not callable(value):
            for key, one in vars(value).items():
                self.visit(f"{dot}{key}", one, deep + 1)

    def _optimizer(self, dot: str, optimizer: torch.optim.Optimizer) -> None:
        known = dict(self.names)
        for at, group in enumerate(optimizer.param_groups):
            self.keep(f"{dot}lr.{at}", float(group["lr"]))
            for parameter in group["params"]:
                leaf = known.get(id(parameter))
                for word, value in optimizer.state.get(parameter, {}).items():
                    if not isinstance(value, torch.Tensor | int | float):
                        continue
                    place = f"{dot}{word}.{leaf or id(parameter)}"
                    same = isinstance(value, torch.Tensor) and value.shape == parameter.shape and leaf is not None
                    if same:
                        self.keep(place, value, (f"{dot}{word}", str(leaf)))
                    elif f"{dot}{word}" not in self.arrays:
                        self.keep(f"{dot}{word}", value)
