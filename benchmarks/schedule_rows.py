"""Rows of docs/schedules.md: a scheduler of PyTorch, its obvious translation into Optax, its exact rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optax
from optax import contrib
from torch.optim import lr_scheduler as lr

from parity import schedules as ours

__all__ = ["NAMES", "ROWS", "Row"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scheduler of PyTorch with arguments that people use."""

    torch: str
    """How it is built, for an optimizer `o` with the rate 0.1."""
    optax: str
    """What one would write down instead."""
    exact: str
    """The rule of `parity.schedules`."""
    why: str
    """Why the obvious translation is another schedule, or how close it is."""
    upstream: Callable[..., Any]
    """Function of Optax that the obvious translation calls."""


ROWS: tuple[Row, ...] = (
    Row(
        torch="ConstantLR(o, factor=0.3, total_iters=100)",
        optax="optax.piecewise_constant_schedule(0.03, {100: 1 / 0.3})",
        exact="Constant(factor=0.3, total_iters=100)",
        why="equal with these constants; PyTorch multiplies by `1 / factor`, which may round",
        upstream=optax.piecewise_constant_schedule,
    ),
    Row(
        torch="LinearLR(o, start_factor=0.3, total_iters=150)",
        optax="optax.linear_schedule(0.03, 0.1, 150)",
        exact="Linear(start_factor=0.3, total_iters=150)",
        why="rounding, which PyTorch adds up from step to step",
        upstream=optax.linear_schedule,
    ),
    Row(
        torch="PolynomialLR(o, total_iters=5000, power=2.0)",
        optax="optax.polynomial_schedule(0.1, 0.0, 2.0, 5000)",
        exact="Polynomial(total_iters=5000, power=2.0)",
        why="rounding, which PyTorch adds up, a larger part of a smaller rate; at the end PyTorch has 0, Optax 2e-34",
        upstream=optax.polynomial_schedule,
    ),
    Row(
        torch="ExponentialLR(o, gamma=0.999)",
        optax="optax.exponential_decay(0.1, 1, 0.999)",
        exact="Exponential(gamma=0.999)",
        why="rounding, which PyTorch adds up",
        upstream=optax.exponential_decay,
    ),
    Row(
        torch="StepLR(o, step_size=30, gamma=0.9)",
        optax="optax.exponential_decay(0.1, 30, 0.9)",
        exact="Step(step_size=30, gamma=0.9)",
        why="Optax decays at every step unless `staircase=True` is given; with it, rounding",
        upstream=optax.exponential_decay,
    ),
    Row(
        torch="MultiStepLR(o, milestones=[80, 120, 120], gamma=0.5)",
        optax="optax.piecewise_constant_schedule(0.1, {80: 0.5, 120: 0.5})",
        exact="MultiStep(milestones=(80, 120, 120), gamma=0.5)",
        why="a milestone that is listed twice counts twice in PyTorch, and a dict holds it once; else equal",
        upstream=optax.piecewise_constant_schedule,
    ),
    Row(
        torch="CosineAnnealingLR(o, T_max=150, eta_min=0.001)",
        optax="optax.cosine_decay_schedule(0.1, 150, alpha=0.001)",
        exact="Cosine(T_max=150, eta_min=0.001)",
        why="`alpha` is a part of the rate, `eta_min` a rate; PyTorch rises again after `T_max`, Optax stays",
        upstream=optax.cosine_decay_schedule,
    ),
    Row(
        torch="CosineAnnealingWarmRestarts(o, T_0=50, T_mult=2)",
        optax="optax.sgdr_schedule([dict(init_value=0.0, peak_value=0.1, warmup_steps=0, decay_steps=50 * 2**i)"
        " for i in range(9)])",
        exact="CosineRestarts(T_0=50, T_mult=2)",
        why="rounding; where a wave ends near 0 it is a large part of the rate",
        upstream=optax.sgdr_schedule,
    ),
    Row(
        torch="CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=40, cycle_momentum=False)",
        optax="optax.join_schedules([optax.linear_schedule(0.01, 0.1, 40), optax.linear_schedule(0.1, 0.01, 40)]"
        " * 125, [40 * i for i in range(1, 250)])",
        exact="Cyclic.of(0.01, 0.1, 40, cycle_momentum=False)",
        why="Optax has no cycle; joined lines are equal up to rounding. Its momentum has no counterpart",
        upstream=optax.join_schedules,
    ),
    Row(
        torch="OneCycleLR(o, max_lr=0.1, total_steps=10001)",
        optax="optax.cosine_onecycle_schedule(10001, 0.1)",
        exact="OneCycle.of(0.1, 10001)",
        why="each phase ends one step earlier in PyTorch, at `pct_start * total_steps - 1` and `total_steps - 1`. "
        "Its momentum has no counterpart",
        upstream=optax.cosine_onecycle_schedule,
    ),
    Row(
        torch="LambdaLR(o, lambda t: 1 / (1 + 0.01 * t))",
        optax="lambda t: 0.1 / (1 + 0.01 * t)",
        exact="Lambda(tables=(tabulate(lambda t: 1 / (1 + 0.01 * t), 10_000),))",
        why="rounding: PyTorch multiplies the rate by the factor",
        upstream=optax.scale_by_schedule,
    ),
    Row(
        torch="MultiplicativeLR(o, lambda t: 1 - 1 / (t + 10))",
        optax="lambda t: 0.1 * (1 - 1 / (t + 10))",
        exact="Multiplicative(tables=(tabulate(lambda t: 1 - 1 / (t + 10), 10_000),))",
        why="the factor is on the rate before, not on the first one: the product of all factors so far",
        upstream=optax.scale_by_schedule,
    ),
    Row(
        torch="ReduceLROnPlateau(o, factor=0.5, patience=5)",
        optax="optax.contrib.reduce_on_plateau(factor=0.5, patience=5)",
        exact="Plateau(factor=0.5, patience=5)",
        why="PyTorch lowers the rate after more than `patience` bad metrics, Optax after as many. `mode`, "
        "`threshold_mode` and `eps` have no counterpart",
        upstream=contrib.reduce_on_plateau,
    ),
    Row(
        torch="SequentialLR(o, [LinearLR(o, 0.01, total_iters=50), CosineAnnealingLR(o, 9950)], [50])",
        optax="optax.warmup_cosine_decay_schedule(0.001, 0.1, 50, 9950)",
        exact="Sequential(rules=(Linear(start_factor=0.01, total_iters=50), Cosine(T_max=9950)), milestones=(50,))",
        why="`decay_steps` counts the warm-up in Optax: the wave is 9,900 steps long there. With 10,000, rounding",
        upstream=optax.warmup_cosine_decay_schedule,
    ),
    Row(
        torch="ChainedScheduler([LinearLR(o, 0.1, total_iters=100), CosineAnnealingLR(o, 1000, eta_min=0.01)])",
        optax="lambda t: optax.linear_schedule(0.1, 1.0, 100)(t) * optax.cosine_decay_schedule(0.1, 1000, 0.1)(t)",
        exact="Chained(rules=(Linear(start_factor=0.1, total_iters=100), Cosine(T_max=1000, eta_min=0.01)))",
        why="PyTorch's cosine scales how far the warmed-up rate is above `eta_min`, which is no product of two "
        "factors; and it rises again after `T_max`",
        upstream=optax.cosine_decay_schedule,
    ),
)

NAMES: dict[str, Any] = {
    **{name: getattr(lr, name) for name in lr.__all__},
    **{name: getattr(ours, name) for name in ours.__all__},
    "optax": optax,
}
