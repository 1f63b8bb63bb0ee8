"""The table behind the limits in `parity/criteria.py`: multiples of the envelope of clean and of faulty ports.

`python -m benchmarks.criteria_table` prints Markdown. Every fault is planted into the JAX twin alone; the envelope is
that of the clean twins. `float64` is the largest relative difference of the loss, the other columns are multiples
of the envelope.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

import jax

import jax_side.dropout
import jax_side.model
import jax_side.optimizer
from parity import sides
from parity.checks.pair import TwinPair
from parity.checks.walk import losses, walk
from parity.criteria import curve_gap, envelope_multiple
from parity.spec import Precision, RunSpec, preset

STEPS = {"mlp-digits": 200, "cnn-digits": 200, "gpt-text": 60}
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


def measure(name: str, precision: Precision, seeds: int) -> Iterator[tuple[str, float]]:
    """Yield fault and figure for every fault that applies to a preset."""
    spec = replace(preset(name, precision), steps=STEPS[name])
    both = {side: sides.load(side) for side in ("torch", "jax")}
    pair = TwinPair(spec, both, seeds=seeds)
    reference = losses(pair.curve("torch"))
    for fault, (plant, names) in FAULTS.items():
        if name not in names:
            continue
        with _planted(plant, spec) as faulty:
            curve = losses(walk(both["jax"].build(faulty), spec.steps))
        if precision == "float64":
            yield fault, curve_gap(reference, curve).max_rel
        else:
            yield fault, envelope_multiple(list(reference.values()), list(curve.values()), pair.envelope.width)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    seeds = parser.parse_args().seeds
    figures: dict[tuple[str, str], dict[str, float]] = {}
    for name in STEPS:
        for precision in PRECISIONS:
            for fault, value in measure(name, precision, seeds):
                figures.setdefault((fault, name), {})[precision] = value
    print(f"| port | preset | steps | {' | '.join(PRECISIONS)} |")
    print("|---|---|---|" + "---|" * len(PRECISIONS))
    for (fault, name), row in sorted(figures.items(), key=lambda item: list(FAULTS).index(item[0][0])):
        print(f"| {fault} | {name} | {STEPS[name]} | {' | '.join(f'{row[p]:.2g}' for p in PRECISIONS)} |")


if __name__ == "__main__":
    main()
