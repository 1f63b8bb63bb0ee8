"""Calls of the modules of a model, kept by hooks that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.contract import ModuleCall

__all__ = ["Calls", "arrays_in"]


def arrays_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the float tensors in what a module takes or returns, in order.

    Those of a dictionary are in the order of its keys, as JAX has them: two that hold the same are equal in whatever
    order they were filled. An output of transformers keeps its own order, which is that of its tuple.
    """
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif hasattr(value, "to_tuple"):
        for one in value.values():
            yield from arrays_in(one)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from arrays_in(value[key])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from arrays_in(one)


class Calls:
    """What each module of a model was given and returned.

    Args:
        module: The model; its own call is the last.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._seen: list[tuple[str, str, list[torch.Tensor], list[torch.Tensor]]] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep calls while the model is called."""
        handles = [
            one.register_forward_hook(self._hook(path), with_kwargs=True)
            for path, one in self.module.named_modules(remove_duplicate=True)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, path: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            taken, made = list(arrays_in([*args, *kwargs.values()])), list(arrays_in(output))
            self._seen.append((path, type(module).__name__, taken, made))

        return hook

    def ended(self, total: torch.Tensor | None) -> tuple[ModuleCall, ...]:
        """Return the calls, with gradients of a total if there is one."""
        wanted = [one for _, _, _, made in self._seen for one in made if one.requires_grad]
        grads: dict[int, torch.Tensor | None] = {}
        if total is not None and wanted:
            found = torch.autograd.grad(total, wanted, retain_graph=True, allow_unused=True)
            grads = {id(one): grad for one, grad in zip(wanted, found, strict=True)}
        return tuple(
            ModuleCall(path, kind, tuple(map(_numpy, taken)), tuple(map(_numpy, made)),
                       tuple(_maybe(grads.get(id(one))) for one in made))
            for path, kind, taken, made in self._seen
        )  # fmt: skip


def _numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().to(torch.float64).cpu().numpy()


def _maybe(tensor: torch.Tensor | None) -> np.ndarray[Any, Any] | None:
    return None if tensor is None else _numpy(tensor)
