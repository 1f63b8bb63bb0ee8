"""The tables of docs/schedules.md: each scheduler of PyTorch, its obvious translation into Optax, and the exact one.

`python -m benchmarks.equivalence_schedules --write docs/schedules.md` measures and writes them, in float64. What was
measured is kept in `benchmarks/equivalence_schedules.json`; `--kept` writes the page from it without measuring.
"""

from __future__ import annotations

import argparse
import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from optax import contrib
from torch.optim import lr_scheduler as lr

from benchmarks.peers_policy import fill
from jax_side.schedules import traced
from parity import schedules as ours
from parity.schedules import Schedule
from parity.storage import replace_file
from torch_side.schedules import from_torch

COMMAND = "python -m benchmarks.equivalence_schedules --write docs/schedules.md"
KEPT = Path(__file__).with_suffix(".json")
"""The record of the last measurement; the page is made from it."""

SHORT, LONG = 200, 10_000
"""Steps over which the differences are taken."""
BASE = 0.1
SAME = 1e-12
"""Relative difference above which a rate is another rate, not a rounding."""

Array = np.ndarray[Any, np.dtype[np.float64]]


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

STATE: dict[str, str] = {
    "Position": "`last_epoch`, `_step_count`, `base_lrs`, `_last_lr`",
    "RestartPosition": "`last_epoch`, `_step_count`, `base_lrs`, `_last_lr`, `T_cur`, `T_i`",
    "PlateauPosition": "`last_epoch`, `_last_lr`, `best`, `num_bad_epochs`, `cooldown_counter`",
    "TreePosition": "`_last_lr` and those of every part",
}
"""Position to the entries of PyTorch's state that it holds."""


def optimizer() -> torch.optim.Optimizer:
    """Return an optimizer with momentum and one parameter group at the base rate."""
    out = torch.optim.SGD([torch.zeros(1)], lr=BASE, momentum=0.9)
    out.step()
    return out


def metric(step: int) -> float:
    """Return a validation loss that falls ever more slowly, with noise."""
    return 1.0 / (1.0 + step / 10) + 0.05 * (step * 7919 % 101) / 101


def torch_rates(row: Row) -> tuple[Array, Schedule]:
    """Return PyTorch's rates of the first steps, and the schedule that its scheduler was read as at the start."""
    one = optimizer()
    scheduler = eval(row.torch, NAMES, {"o": one})
    schedule, out = from_torch(scheduler, horizon=LONG), []
    for step in range(LONG):
        out.append(one.param_groups[0]["lr"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the optimizer is not stepped
            scheduler.step(*((metric(step),) if isinstance(scheduler, lr.ReduceLROnPlateau) else ()))
    return np.array(out), schedule


def optax_rates(row: Row) -> Array:
    """Return the rates of the obvious translation, float64."""
    made = eval(row.optax, NAMES)
    if not isinstance(made, optax.GradientTransformationExtraArgs):
        return np.asarray(jax.jit(jax.vmap(made))(jnp.arange(LONG)), np.float64) * np.ones(LONG)
    state, out = made.init(jnp.zeros(())), []
    update = jax.jit(lambda state, value: made.update(jnp.ones(()), state, value=value))
    for step in range(LONG):
        out.append(BASE * float(state.scale))
        _, state = update(state, metric(step))
    return np.array(out)


def our_rates(row: Row, schedule: Schedule) -> tuple[Array, Array]:
    """Return the rates of the rule as the page builds it, and those of the schedule read from PyTorch."""
    built = Schedule(eval(row.exact, NAMES), [BASE])
    return driven(built), driven(schedule)


def driven(schedule: Schedule) -> Array:
    if not schedule.rule.metric:
        return schedule.take(LONG).rates[:, 0]
    out = []
    for step in range(LONG):
        out.append(schedule.rates[0])
        schedule.step(metric(step))
    return np.array(out)


def gap(a: Array, b: Array) -> Array:
    """Return the relative difference of two curves at each step; 0 where both are 0."""
    largest = np.maximum(np.abs(a), np.abs(b))
    return np.abs(a - b) / np.where(largest == 0, 1, largest)


def lines(thing: Any, root: str) -> str:
    """Return where a class or function stands in an installed package: file and lines."""
    source, first = inspect.getsourcelines(inspect.unwrap(thing))
    path = Path(inspect.getsourcefile(inspect.unwrap(thing)) or "")
    return f"{path.as_posix().split(f'/{root}/')[-1]}:{first}-{first + len(source) - 1}"


def measure(row: Row) -> dict[str, Any]:
    """Return the figures of a row."""
    theirs, schedule = torch_rates(row)
    obvious, position = optax_rates(row), type(schedule.position).__name__
    built, read = our_rates(row, schedule)
    off = gap(theirs, obvious)
    name = row.torch.partition("(")[0]
    return {
        "scheduler": name,
        "bits": _first(theirs != obvious),
        "first": _first(off > SAME),
        "short": float(off[:SHORT].max()),
        "long": float(off.max()),
        "exact": int(((theirs == built) & (theirs == read)).sum()),
        "traced": _traced(row),
        "state": STATE[position] + (", the momentum of each group" if schedule.rule.momentum else ""),
        "torch": lines(getattr(lr, name), "torch"),
        "optax": lines(row.upstream, "optax"),
    }


def _traced(row: Row) -> float | None:
    """Return the largest relative difference of the traced schedule in float32."""
    schedule = Schedule(eval(row.exact, NAMES), [BASE])
    if schedule.rule.metric:
        return None
    table = traced(schedule, LONG)
    with jax.enable_x64(False):
        found = np.asarray(table(jnp.arange(LONG)), np.float64)
    return float(gap(found, schedule.take(LONG).rates[:, 0]).max())


def _first(where: Any) -> int | None:
    return int(np.argmax(where)) if where.any() else None


def record() -> dict[str, Any]:
    """Measure every row, in float64."""
    with jax.enable_x64(True):
        rows = [measure(row) for row in ROWS]
    versions = {name: version(name).partition("+")[0] for name in ("torch", "optax", "jax")}
    return {"versions": versions, "rows": rows}


def tables(kept: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of the page by their markers."""
    return {"translations": _translations(kept), "exact": _exact(kept)}


def _figure(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}".replace("e-0", "e-").replace("e+00", "")


def _step(value: int | None) -> str:
    return "never" if value is None else f"{value:,}"


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _translations(kept: Mapping[str, Any]) -> str:
    out = [
        "| PyTorch | obvious in Optax | other bits from step | another rate from step "
        f"| {SHORT} steps | {LONG:,} steps | why |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, found in zip(ROWS, kept["rows"], strict=True):
        figures = (_step(found["bits"]), _step(found["first"]), _figure(found["short"]), _figure(found["long"]))
        out.append(f"| {_code(row.torch)} | {_code(row.optax)} | {' | '.join(figures)} | {row.why} |")
    return "\n".join(out)


def _exact(kept: Mapping[str, Any]) -> str:
    out = [
        f"| PyTorch | call it like this | equal of {LONG:,} | traced, float32 | state | torch | Optax |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, found in zip(ROWS, kept["rows"], strict=True):
        equal, off = f"{found['exact']:,}", _figure(found["traced"])
        places = f"`{found['torch']}` | `{found['optax']}`"
        name = f"`{found['scheduler']}`"
        out.append(f"| {name} | {_code(row.exact)} | {equal} | {off} | {found['state']} | {places} |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page whose tables are replaced")
    parser.add_argument("--kept", action="store_true", help="take the record of the last measurement")
    options = parser.parse_args()
    found = json.loads(KEPT.read_text(encoding="utf-8")) if options.kept else record()
    if not options.kept:
        replace_file(KEPT, json.dumps(found, indent=1, allow_nan=False) + "\n")
    for text in tables(found).values():
        print(text, "\n")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        for name, text in tables(found).items():
            page = fill(page, name, text)
        replace_file(options.write, page)


if __name__ == "__main__":
    main()
