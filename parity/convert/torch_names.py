"""Names of a model's state dict in PyTorch: what wrappers put before them, and which are buffers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parity.formats import Array

__all__ = ["is_buffer", "plain_name", "statistics"]

_WRAPPER = re.compile(r"^(?:(?:_orig_mod|module|_fsdp_wrapped_module)\.)+")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of a normalization, in the order in which `torch.nn` writes them."""

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
    """Return whether a name of a state dict is called as a buffer is: a statistic of a normalization, or no floats.

    It says where an array goes of which nothing else is known; which parameters an optimizer has, it does not.

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


def statistics(model: Mapping[str, Array], *, ordered: bool = False) -> set[str]:
    """Return the statistics of normalizations, as `torch.nn` writes them: three buffers of one module, a count last.

    A name alone tells nothing, as a parameter may have it. The three stand together only where the whole module is a
    normalization: two floating arrays of one length and type, and behind them the count, an integer without a shape.

    Args:
        model: Arrays by name.
        ordered: Whether they are in the order of insertion, so that the three are neighbours.

    Example:
        >>> from parity.formats import InMemory
        >>> import numpy as np
        >>> pair = {"a.running_mean": InMemory(np.zeros(3)), "a.running_var": InMemory(np.ones(3))}
        >>> statistics(pair), sorted(statistics({**pair, "a.num_batches_tracked": InMemory(np.array(7))}))
        (set(), ['a.num_batches_tracked', 'a.running_mean', 'a.running_var'])
    """
    places = {name: at for at, name in enumerate(model)}
    found: set[str] = set()
    for name, array in model.items():
        module, dot, last = name.rpartition(".")
        if last != _STATISTICS[2] or array.dtype.kind not in "iu" or array.shape:
            continue
        mean, var = (f"{module}{dot}{one}" for one in _STATISTICS[:2])
        if mean not in model or var not in model or len(model[mean].shape) != 1:
            continue
        alike = (model[mean].shape, model[mean].dtype) == (model[var].shape, model[var].dtype)
        together = places[mean] + 2 == places[var] + 1 == places[name]
        if alike and model[mean].dtype.kind not in "iub" and (together or not ordered):
            found |= {mean, var, name}
    return found
