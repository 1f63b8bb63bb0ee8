"""Lion as a class of torch.optim, which has none: the sign of an interpolated gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Lion"]


class Lion(torch.optim.Optimizer):
    """Lion, whose momentum is there from a parameter's first update, as zeros.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate.
        betas: Weight of the momentum in the step, and in the next momentum.
        weight_decay: Decoupled, scaled by the learning rate.
        maximize: Whether to climb.

    Source: Chen et al., arXiv:2302.06675, algorithm 2; the twin is `jax_side.optim.lion`.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = Lion([weight], lr=0.25)
        >>> weight.grad = torch.tensor([3.0, -1.0])
        >>> optimizer.step()
        >>> weight.tolist()
        [0.75, 1.25]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: Computes the loss anew, before the update; None for none.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first, second = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                grad = -p.grad if group["maximize"] else p.grad
                momentum = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                direction = (momentum * first).add_(grad, alpha=1 - first).sign_()
                if group["weight_decay"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(direction, alpha=-group["lr"])
                momentum.mul_(second).add_(grad, alpha=1 - second)
        return loss
