"""Muon for whole models: matrices by Muon, iterated in their own dtype, and every other parameter by AdamW."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

__all__ = ["Muon"]

BETAS, EPS = (0.9, 0.999), 1e-8
"""Arguments of AdamW beside the rate and the decay, which are those of the group."""


class Muon(torch.optim.Optimizer):
    """Muon as one optimizer of a model.

    `torch.optim.Muon` takes matrices alone, and iterates in bfloat16 for parameters of any dtype, so that two
    frameworks differ by 0.01 in an element of a step. Here the iteration is as exact as the parameters.

    Args:
        params: Parameters, or groups of them, of any number of dimensions; those that are not matrices take AdamW.
        lr: Learning rate.
        weight_decay: Decoupled, scaled by the learning rate.
        momentum: Decay of the buffer.
        nesterov: Whether to look one step ahead.
        ns_coefficients: Of the quintic polynomial.
        eps: Smallest norm that is divided by.
        ns_steps: Iterations.
        adjust_lr_fn: How the shape scales the rate, as of `torch.optim.Muon`.

    Source: torch.optim.Muon (2.13); Jordan, https://kellerjordan.github.io/posts/muon/. The twin is
    `jax_side.optim.muon` with `iteration_dtype`.

    Example:
        >>> weight, bias = (torch.nn.Parameter(torch.ones(shape)) for shape in ((2, 2), (2,)))
        >>> optimizer = Muon([weight, bias], lr=0.1)
        >>> for p in (weight, bias):
        ...     p.grad = torch.ones_like(p)
        >>> optimizer.step()
        >>> sorted(optimizer.state[weight]), sorted(optimizer.state[bias])
        (['momentum_buffer'], ['exp_avg', 'exp_avg_sq', 'step'])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        own = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
        shape = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**own, **shape})

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
            for p in (p for p in group["params"] if p.grad is not None):
                (self._matrix if p.ndim == 2 else self._other)(p, p.grad, group)
        return loss

    def _matrix(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
        buffer.lerp_(grad, 1 - group["momentum"])
        update = _orthogonal(grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer, group)
        rows, columns = p.shape
        matched = group["adjust_lr_fn"] == "match_rms_adamw"
        ratio = 0.2 * math.sqrt(max(rows, columns)) if matched else math.sqrt(max(1, rows / columns))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update, alpha=-group["lr"] * ratio)

    def _other(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        adamw(
            [p],
            [grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            foreach=False,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=EPS,
            maximize=False,
        )


def _orthogonal(update: Tensor, group: dict[str, Any]) -> Tensor:
    """Return a matrix with the singular vectors of `update`, its singular values near 1."""
    a, b, c = group["ns_coefficients"]
    tall = update.shape[0] > update.shape[1]
    x = update.T if tall else update
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x
