"""The noise of a spec: starts moved by one ulp, how far that moves the losses, and the envelope, which is cached."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity import threefry
from parity.checks import FLOOR_ULPS, SEEDS, WINDOW, OnStep, curve_gap, envelope, ignore_step, losses, one_ulp_away
from parity.contract import Trainer
from parity.environment import versions
from parity.reference.across.curves import run_from
from parity.reference.cache import cache_directory
from parity.sides import source_digest
from parity.spec import Precision, RunSpec
from parity.state import TrainingState
from parity.storage import replace_file

__all__ = ["Envelope", "measure_envelope", "noise_floor", "perturbed"]

STREAM = 0x0001F
"""Folded into the key of a seed, so that what moves a start is drawn by itself."""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Half-width at each step, float64, shape [steps], and the runs it was measured from."""

    width: NDArray[np.float64]
    seeds: int
    sides: tuple[str, ...]


def perturbed(state: TrainingState, seed: int, precision: Precision) -> TrainingState:
    """Return a state whose every parameter moved by one ulp of the *compute* precision, up or down at random.

    Args:
        state: A state at step 0.
        seed: Draws the signs.
        precision: The run's precision.
    """
    arrays = dict(state.arrays)
    root = threefry.fold_in(threefry.key(seed), STREAM)
    names = sorted(name for name in arrays if name.startswith("model.params."))
    for number, name in enumerate(names):
        values = arrays[name]
        draws = threefry.bits(threefry.fold_in(root, number), values.size).reshape(values.shape)
        arrays[name] = one_ulp_away(values, (draws & np.uint32(1)) > 0, precision)
    return TrainingState(arrays=arrays, scalars=state.scalars)


def measure_envelope(
    spec: RunSpec,
    trainers: Sequence[Trainer],
    start: TrainingState,
    until: int,
    *,
    seeds: int = SEEDS,
    key: str | None = None,
    on_step: OnStep = ignore_step,
) -> Envelope:
    """Run perturbed starts on every trainer and return the wider envelope at each step.

    Args:
        spec: The run, for its precision and its name.
        trainers: One per side; they are reset to perturbed states, and left at `until`.
        start: The state at step 0.
        until: Steps to run.
        seeds: Perturbed runs per trainer.
        key: What the curves depend on besides the start, the versions, the machine and the suite's own sources: the
            trainers' topologies, and the sources of those that are not the suite's. With a key, the envelope is
            looked up in, and written to, the cache directory (PARITY_CACHE, or ~/.cache/parity); without, nothing is
            cached.
        on_step: Called for each step.
    """
    names = tuple(t.side for t in trainers)
    file = None if key is None else _cache_file(spec, start, (*names, key), until, seeds)
    if file is not None and (width := _cached(file, until)) is not None:
        return Envelope(width=width, seeds=seeds, sides=names)
    widths = []
    for trainer in trainers:
        base = list(losses(run_from(trainer, until, start, on_step)).values())
        runs = [
            list(losses(run_from(trainer, until, perturbed(start, seed, spec.precision), on_step)).values())
            for seed in range(1, seeds + 1)
        ]
        widths.append(envelope(base, runs))
    width = np.max(widths, axis=0)
    if file is not None and np.isfinite(width).all():
        with suppress(OSError):  # a cache that cannot be written is no cache
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, json.dumps({"width": width.tolist()}))
    return Envelope(width=width, seeds=seeds, sides=names)


def noise_floor(trainer: Trainer, start: TrainingState, base: dict[int, float], until: int) -> float:
    """Return the largest relative change of the loss when one side's start moves by one float64 ulp.

    Args:
        trainer: What trains; it is left at `until`.
        start: The state at step 0, before it is moved.
        base: Step to loss of the run from that state.
        until: Steps to run.

    Numerics: the largest of |moved - base| / |base| over the steps that both have; parameters move up or down as seed
    1 draws.
    """
    moved = losses(run_from(trainer, until, perturbed(start, 1, "float64")))
    return curve_gap(base, moved).max_rel


def _cached(file: Path, until: int) -> NDArray[np.float64] | None:
    """Return the width in a cache file, or None if there is none that can be read."""
    try:
        width = np.array(json.loads(file.read_text())["width"], np.float64)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return width if width.shape == (until,) else None


def _cache_file(spec: RunSpec, start: TrainingState, trainers: tuple[str, ...], until: int, seeds: int) -> Path:
    key = [start.scalars["config.spec"], start.scalars["config.hash"], trainers, until, seeds, dict(versions())]
    key += [WINDOW, FLOOR_ULPS, platform.machine(), platform.processor(), source_digest()]
    return cache_directory() / "envelopes" / f"{spec.name}-{xxhash.xxh3_64_hexdigest(json.dumps(key).encode())}.json"
