"""Dropout of PyTorch with masks that are given, by modules and by functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from parity.contract import DropoutMasks

__all__ = ["GivenMasks"]

_PLAIN = {functional.dropout: ("p", "training"), torch.dropout: ("p", "train")}
"""Functions that drop single elements, to what their arguments are called after the first."""

_OTHERS = {functional.alpha_dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d,
           functional.feature_alpha_dropout, torch.feature_dropout, torch.alpha_dropout}  # fmt: skip
"""Those that drop otherwise; attention that drops inside says so by `dropout_p`."""

_DEFAULTS = {"p": 0.5, "training": True, "train": True}


class GivenMasks(TorchFunctionMode):
    """Answer every dropout with a mask in place of its own draws.

    Args:
        masks: Gives them, and is told of what drops otherwise.
    """

    def __init__(self, masks: DropoutMasks) -> None:
        super().__init__()
        self.masks = masks

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of PyTorch, or drop what the mask says."""
        given = dict(kwargs or {})
        if func in _PLAIN:
            names = ("input", *_PLAIN[func])
            said = {**_DEFAULTS, **dict(zip(names, args, strict=False)), **given}
            rate, training = float(said["p"]), bool(said[names[2]])
            if not training or rate == 0.0:
                return said["input"]
            value = said["input"]
            kept = torch.from_numpy(self.masks.mask(rate, tuple(value.shape)).copy())
            return torch.where(kept, value / (1.0 - rate), torch.zeros_like(value))
        if func in _OTHERS or float(given.get("dropout_p") or 0.0) > 0.0:
            self.masks.unseen.append(getattr(func, "__name__", str(func)))
        return func(*args, **given)
