"""Advice: what a difference between a trainer and its port usually comes from, in one line."""

from __future__ import annotations

__all__ = ["advise_port"]

_FIRST = {
    "data.batch": "the two read other samples, or the same ones in another order: give both one data order",
    "loss": "equal parameters, another loss: compare forward pass and loss function (epsilon of norms, form of GELU, "
    "dropout, reduction, padding, smoothing)",
    "optimizer.first_moment": "the loss agrees, the first moment does not: the gradient differs after the forward "
    "pass (clipping, scaling, decay added to the gradient, accumulation), or beta1",
    "optimizer.momentum": "the loss agrees, the momentum does not: dampening, Nesterov, clipping, or decay that is "
    "added to the gradient",
    "optimizer.second_moment": "the first moment agrees, the second does not: beta2, or where its epsilon is added",
    "model.params": "the moments agree, the parameters do not: rate, decay, epsilon or bias correction of the update",
    "model.buffers": "parameters agree, running statistics do not: momentum of the norm (PyTorch's is one less "
    "Flax's), or the biased variance",
    "ema": "the averages differ: decay, or whether it is taken before or after the update",
    "schedule.lr": "the learning rates differ: horizon, warm-up, or whether the schedule steps before the update",
    "scaler.scale": "the loss scales differ: initial scale, growth interval, or which steps were skipped",
    "optimizer.hyperparameters": "set both optimizers to the same hyperparameters: the defaults of PyTorch and Optax "
    "differ",
    "optimizer.step": "the count of updates did not survive the conversion: bias correction starts anew",
    "counters.step": "both must mark every completed step, the same number of times",
    "checkpoint.restore": "what was converted is not what the other side reads: give it the files it resumes from",
}

_START = "the two do not start equal: load the same initial values on both sides"
_TAKEN = "this did not survive the conversion: carry it over, transposed where the parameter is"


def advise_port(component: str, when: str) -> str:
    """Return the usual cause of a difference.

    Args:
        component: What differs first.
        when: `at the start`, `at the handover`, or later.
    """
    if when == "at the start":
        return _START
    if when == "at the handover" and component.startswith(("model", "optimizer", "ema", "schedule")):
        return _TAKEN
    return next((text for prefix, text in _FIRST.items() if component.startswith(prefix)), "")
