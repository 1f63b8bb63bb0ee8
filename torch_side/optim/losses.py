"""The losses of a small least-squares training in float64 with an optimizer of torch.optim."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parity.contract import LeastSquares
from parity.errors import SpecError

__all__ = ["losses", "source"]


def losses(name: str, arguments: Mapping[str, Any], problem: LeastSquares, steps: int) -> NDArray[np.float64]:
    """Return the losses of a training.

    Args:
        name: Class of torch.optim.
        arguments: Its arguments, flags among them.
        problem: What is fitted.
        steps: Number of steps.

    Raises:
        SpecError: PyTorch refuses the arguments here; says why.

    Numerics: float64, one eager step after the other.
    """
    weight = torch.nn.Parameter(torch.from_numpy(problem.start.copy()))
    sign, found = -1 if problem.maximize else 1, np.empty(steps)
    threads = torch.get_num_threads()
    xs, ys = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    torch.set_num_threads(1)  # two threads on matrices as small make a step of Muon 20 times as long
    try:
        optimizer = getattr(torch.optim, name)([weight], **arguments)
        for step in range(steps):
            x, y = xs[step % len(xs)], ys[step % len(ys)]
            difference = x @ weight.detach() - y
            found[step] = (difference**2).mean().item()
            weight.grad = x.T @ difference * (sign * 2 / difference.numel())
            optimizer.step()
    except (RuntimeError, ValueError, TypeError, AssertionError, ArithmeticError) as error:
        why = " ".join(str(error).split())
        raise SpecError(name, f"PyTorch refuses these arguments here: {type(error).__name__}: {why}") from error
    finally:
        torch.set_num_threads(threads)
    return found


def source(name: str) -> str:
    """Return file and line of a class of torch.optim, from its package on."""
    function = getattr(torch.optim, name).__init__
    parts = Path(inspect.getsourcefile(function) or "").parts
    return f"{'/'.join(parts[len(parts) - 1 - parts[::-1].index('torch') :])}:{inspect.getsourcelines(function)[1]}"
