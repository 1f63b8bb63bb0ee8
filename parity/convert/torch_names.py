"""Names of a model's state dict in PyTorch: what wrappers put before them, and which are buffers."""

from __future__ import annotations

import re

from parity.formats import Array

__all__ = ["is_buffer", "plain_name"]

_WRAPPER = re.compile(r"^(?:(?:_orig_mod|module|_fsdp_wrapped_module)\.)+")
_BUFFER = re.compile(r"(?:^|\.)(?:running_mean|running_var|num_batches_tracked)$")


def plain_name(name: str) -> str:
    """Return a name without what compilers and wrappers of modules put before it.

    Args:
        name: As a file spells it.

    Example:
        >>> plain_name("module._orig_mod.head.weight")
        'head.weight'
    """
    return _WRAPPER.sub("", name)


def is_buffer(name: str, array: Array) -> bool:
    """Return whether a name of a state dict is a buffer: a statistic of a normalization, or no floating array.

    Args:
        name: Dotted name, whose last part tells the statistics of BatchNorm.
        array: Its value; an array of integers or truth values is a buffer under any name.

    Example:
        >>> from parity.formats import InMemory
        >>> import numpy as np
        >>> is_buffer("norm.running_mean", InMemory(np.zeros(3))), is_buffer("norm.weight", InMemory(np.zeros(3)))
        (True, False)
    """
    return bool(_BUFFER.search(name)) or array.dtype.kind in "iub"
