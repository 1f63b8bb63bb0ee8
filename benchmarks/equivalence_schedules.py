"""The tables of docs/schedules.md: each scheduler of PyTorch, its obvious translation into Optax, and the exact one.

`python -m benchmarks.equivalence_schedules --write docs/schedules.md` measures and writes them, in float64. What was
measured is kept in `benchmarks/equivalence_schedules.json`; `--kept` writes the page from it without measuring.
"""

from __future__ import annotations

import argparse
import inspect
import json
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.optim import lr_scheduler as lr

from benchmarks.peers_policy import write_tables
from benchmarks.schedule_rows import NAMES, ROWS, Row
from jax_side.schedules import traced
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
        write_tables(options.write, tables(found))


if __name__ == "__main__":
    main()
