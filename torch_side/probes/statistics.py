"""Running statistics of a module: the buffers that a normalisation is called with, whatever a user calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

__all__ = ["statistics_of"]

NAMES = ("running_mean", "running_var")
"""What PyTorch calls them, as attributes of its modules and as arguments of its functions."""

PLACES: Mapping[Callable[..., Any], int] = {
    functional.batch_norm: 1,
    functional.instance_norm: 1,
    torch.batch_norm: 3,
    torch.instance_norm: 3,
    torch.native_batch_norm: 3,
}
"""A function to the place of the first of both among its arguments."""


class _Normalised(TorchFunctionMode):
    """Keeps the tensors that normalisations take as running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func in PLACES:
            both = [*args[PLACES[func] : PLACES[func] + 2], *(given.get(name) for name in NAMES)]
            self.taken |= {id(one) for one in both if isinstance(one, torch.Tensor)}
        return func(*args, **given)


def statistics_of(module: nn.Module, call: Callable[[], Any] | None = None) -> frozenset[str]:
    """Return the paths of the buffers that are running statistics.

    Args:
        module: It; PyTorch's modules of normalisation, and a user's with buffers under their names, are known.
        call: Calls it in evaluation; what a normalisation takes then is known too. What fails is told where the
            outputs of the module are asked for.
    """
    watch = _Normalised()
    if call is not None:
        with suppress(Exception), watch, torch.no_grad(), torch.random.fork_rng(devices=[]):
            call()
    found = set()
    for path, one in module.named_modules():
        own = dict(one.named_buffers(recurse=False))
        named = isinstance(one, _NormBase) or set(NAMES) <= set(own)
        taken = {name for name, buffer in own.items() if id(buffer) in watch.taken}
        for name in {*(NAMES if named else ()), *taken}:
            if getattr(one, name, None) is not None:
                found.add(f"{path}.{name}".lstrip("."))
    return frozenset(found)
