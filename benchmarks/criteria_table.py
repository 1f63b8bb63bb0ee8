"""The tables on which the limits of the checks across sides rest (`criteria.py` there).

`python -m benchmarks.criteria_table --write docs/method.md` measures and writes them.

The first shows how far the twins part over a long float64 run, and how far one unit in the last place at the start
carries one of them. The second shows clean and faulty ports: every fault is planted into the JAX twin alone;
`float64` is the largest relative difference of the loss, the other columns are multiples of the envelope of the clean
twins.

What was measured is kept in `benchmarks/criteria_table.json`; `--kept` writes the page from it without measuring.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax

import jax_side.dropout
import jax_side.model
import jax_side.optimizer
from benchmarks.peers_policy import write_tables
from parity import sides
from parity.checks import curve_gap
from parity.checks.criteria import envelope_multiple
from parity.checks.noise import SEEDS
from parity.environment import describe_environment
from parity.reference.across import TwinPair, losses, run_from
from parity.results import encode
from parity.spec import Precision, RunSpec, preset
from parity.storage import plain, replace_file

COMMAND = "python -m benchmarks.criteria_table --write docs/method.md"
KEPT = Path(__file__).with_suffix(".json")
"""The record of the last measurement; the page is made from it."""

STEPS = {"mlp-digits": 200, "cnn-digits": 200, "gpt-text": 60}
LONG = 1000
"""Steps of the clean float64 twins in the table of presets."""
PRECISIONS: tuple[Precision, ...] = ("float64", "float32", "bfloat16", "float16")

Plant = Callable[[RunSpec, ExitStack], RunSpec]


def _gelu_tanh(spec: RunSpec, stack: ExitStack) -> RunSpec:
    gelu = jax.nn.gelu
    stack.enter_context(patch.object(jax.nn, "gelu", lambda x, approximate: gelu(x, approximate=True)))
    return spec


def _constant(module: object, name: str, value: float) -> Plant:
    def plant(spec: RunSpec, stack: ExitStack) -> RunSpec:
        stack.enter_context(patch.object(module, name, value))
        return spec

    return plant


def _optimizer(**changes: float) -> Plant:
    def plant(spec: RunSpec, stack: ExitStack) -> RunSpec:
        del stack
        fitting = {k: v for k, v in changes.items() if hasattr(spec.optimizer, k)}
        return replace(spec, optimizer=replace(spec.optimizer, **fitting)) if fitting else spec

    return plant


def _warmup(spec: RunSpec, stack: ExitStack) -> RunSpec:
    del stack
    return replace(spec, schedule=replace(spec.schedule, warmup=spec.schedule.warmup + 1))


EVERY = tuple(STEPS)

FAULTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "clean": (lambda spec, stack: spec, EVERY),
    "GELU by tanh": (_gelu_tanh, ("gpt-text",)),
    "norm epsilon 1e-6 for 1e-5": (_constant(jax_side.model, "NORM_EPS", 1e-6), ("cnn-digits", "gpt-text")),
    "clipping without epsilon": (_constant(jax_side.optimizer, "CLIP_EPS", 0.0), EVERY),
    "masks of another stream": (_constant(jax_side.dropout, "STREAM", 0xD1), EVERY),
    "Adam epsilon 1e-7 for 1e-8": (_optimizer(eps=1e-7), ("mlp-digits", "gpt-text")),
    "beta2 0.99": (_optimizer(beta2=0.99), ("mlp-digits", "gpt-text")),
    "weight decay of Optax (1e-4)": (_optimizer(weight_decay=1e-4), ("mlp-digits", "gpt-text")),
    "no Nesterov": (_optimizer(nesterov=False), ("cnn-digits",)),
    "warm-up one step longer": (_warmup, EVERY),
}  # fmt: skip


@contextmanager
def _planted(plant: Plant, spec: RunSpec) -> Iterator[RunSpec]:
    with ExitStack() as stack:
        yield plant(spec, stack)


def measure_ports(name: str, precision: Precision, seeds: int) -> Iterator[tuple[str, float]]:
    """Yield port and figure for the clean port and for every fault that applies to a preset."""
    spec = replace(preset(name, precision), steps=STEPS[name])
    pair = TwinPair(spec, _both(), seeds=seeds, cache=False)
    reference = losses(pair.curve("torch"))
    for port, (plant, names) in FAULTS.items():
        if name not in names:
            continue
        with _planted(plant, spec) as faulty:
            curve = losses(run_from(sides.load("jax").build(faulty), spec.steps))
        if precision == "float64":
            yield port, curve_gap(reference, curve).max_rel
        else:
            yield port, envelope_multiple(list(reference.values()), list(curve.values()), pair.envelope.width)


def measure_preset(name: str) -> dict[str, Any]:
    """Return how far the clean float64 twins of a preset part over a long run, and its noise floor."""
    pair = TwinPair(replace(preset(name, "float64"), steps=LONG), _both())
    twins = curve_gap(losses(pair.curve("torch")), losses(pair.curve("jax"))).max_rel
    return {"preset": name, "steps": LONG, "twins": twins, "floor": pair.floor}


def measure(seeds: int) -> dict[str, Any]:
    """Measure both tables and return the record of it, as it is kept."""
    environment = {key: value for key, value in describe_environment().items() if key != "platform"}
    figures: dict[tuple[str, str], dict[str, float]] = {}
    for name in STEPS:
        for precision in PRECISIONS:
            print(f"ports of {name} in {precision} ...", file=sys.stderr, flush=True)
            for port, value in measure_ports(name, precision, seeds):
                figures.setdefault((port, name), {})[precision] = value
    rows = sorted(figures.items(), key=lambda item: list(FAULTS).index(item[0][0]))
    ports = [{"port": port, "preset": name, "steps": STEPS[name], **row} for (port, name), row in rows]
    presets = []
    for name in STEPS:
        print(f"{name} over {LONG} steps ...", file=sys.stderr, flush=True)
        presets.append(measure_preset(name))
    measured = datetime.now(UTC).date().isoformat()
    return {"measured": measured, "environment": environment, "seeds": seeds, "presets": presets, "ports": ports}


def tables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands between the markers of the page, by the names of the markers."""
    presets = ["| preset | steps | twins, largest relative difference | noise floor |", "|---" * 4 + "|"]
    for row in record["presets"]:
        presets.append(f"| {row['preset']} | {row['steps']:,} | {_figure(row['twins'])} | {_figure(row['floor'])} |")
    ports = [f"| port | preset | steps | {' | '.join(PRECISIONS)} |", "|---" * (3 + len(PRECISIONS)) + "|"]
    for row in record["ports"]:
        cells = [row["port"], row["preset"], str(row["steps"]), *(_figure(row[name]) for name in PRECISIONS)]
        ports.append(f"| {' | '.join(cells)} |")
    return {"presets": "\n".join(presets), "ports": "\n".join([*ports, "", _source(record)])}


def _figure(value: float | str) -> str:
    return f"{float(value):.2g}"


def _source(record: Mapping[str, Any]) -> str:
    """Return where both tables come from, in one line."""
    environment = record["environment"]
    commit = f"commit {environment['commit']}{' with uncommitted changes' * environment['dirty']}"
    versions = ", ".join(f"{name} {environment['versions'][name]}" for name in ("jax", "torch"))
    return f"Measured on {record['measured']}, {commit}, {versions}; made by\n`{COMMAND}`."


def _both() -> dict[str, sides.Side]:
    return {side: sides.load(side) for side in ("torch", "jax")}


def main() -> None:
    """Measure, keep the record and write the page; or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace what stands between the page's markers")
    parser.add_argument("--kept", action="store_true", help="measure nothing: use the record of the last measurement")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"perturbed runs per side (default {SEEDS})")
    options = parser.parse_args()
    record = json.loads(KEPT.read_text(encoding="utf-8")) if options.kept else measure(options.seeds)
    if options.write is None:
        print("\n\n".join(tables(record).values()))
        return
    if not options.kept:
        replace_file(KEPT, encode(plain(record)) + "\n")
    write_tables(options.write, tables(record))


if __name__ == "__main__":
    main()
