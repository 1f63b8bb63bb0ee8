"""Programs of a trainer and its port, traced at several draws of what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from torch_side.probes.programs import TorchProgram

__all__ = ["said_of", "traced"]

Function = Callable[..., Any]

Draws = Sequence[Sequence[np.ndarray]]


def traced(trainer: Function, port: Function, draws: Draws) -> tuple[list[Any], list[Any]]:
    """Return both programs at each draw of their arrays.

    Args:
        trainer: Takes tensors to one.
        port: Takes arrays of JAX to one.
        draws: What both are given.
    """
    here = [TorchProgram(lambda x=x: lambda: trainer(*map(torch.from_numpy, x))) for x in draws]  # type: ignore[misc]
    with jax.enable_x64(True):
        return here, [JaxProgram(lambda *x: [port(*x)], *map(jnp.asarray, x)) for x in draws]


def said_of(trainer: Function, port: Function, draws: Draws) -> str:
    """Return the first thing that is said of two programs; empty where nothing is.

    Args:
        trainer: Takes tensors to one.
        port: Takes arrays of JAX to one.
        draws: What both are given.
    """
    found = explain(*traced(trainer, port, draws))
    return found[0].text if found else ""
