"""Noise: how far one unit in the last place at the start moves curves and arrays, measured on every side it can."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parity.checks.noise import SEEDS, spread_of
from parity.checks.ports.series import Series, Trained
from parity.checks.progress import tell
from parity.checks.running import Compute, Nudge, Runner, SameThreadExecutor, Trace, copy_folder

__all__ = ["DIVERGED", "FLOAT64_SEEDS", "Noise", "TakenOver", "measure_noise"]

FLOAT64_SEEDS = 4
"""Nudged runs of each side in float64: they only have to show that noise stays far below the limit."""


DIVERGED = "a nudged run diverged: the envelope is infinite and judges nothing"


@dataclass
class Noise:
    """Largest movement at every step, over all nudged runs."""

    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    """Path of a number to step to absolute movement."""
    leaves: dict[str, dict[int, float]] = field(default_factory=dict)
    """Path of an array to step to the largest absolute movement of an element."""
    sides: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    """Sides whose parameters cannot be written in place."""

    def curve(self, paths: Sequence[str], steps: Sequence[int]) -> NDArray[np.float64]:
        """Return the movement of a curve at each step, float64, shape [steps]: of its names on both sides the larger.

        Args:
            paths: What the curve is called on either side.
            steps: Completed steps.
        """
        found = [self.curves.get(path, {}) for path in paths]
        return np.array([max(one.get(step, 0.0) for one in found) for step in steps])

    def diverged(self, paths: Iterable[str]) -> bool:
        """Return whether a nudged run lost all numbers of one of some arrays, so that every difference would pass."""
        return any(math.isinf(width) for path in paths for width in self.leaves.get(path, {}).values())

    def leaf(self, path: str, step: int) -> float:
        """Return the largest movement of a leaf up to the first step at or after the given one that was kept."""
        found = self.leaves.get(path, {})
        later = [one for one in found if one >= step]
        until = min(later) if later else step
        return max((width for one, width in found.items() if one <= until), default=0.0)


@dataclass(frozen=True)
class TakenOver:
    """A trainer whose runs begin from what a conversion made, so that one unit moves what it took over."""

    trained: Trained
    folder: Path
    """What was converted; each run gets a copy."""

    @property
    def name(self) -> str:
        """Return what it is called in messages."""
        return self.trained.name

    @property
    def runner(self) -> Runner:
        """Return what runs it."""
        return self.trained.runner

    @property
    def numbers(self) -> list[str]:
        """Return its curves."""
        return self.trained.numbers

    def series(self, name: str, paths: Sequence[str], steps: Sequence[int], *, nudge: Nudge) -> tuple[Series, Trace]:
        """Run once from a copy of the folder and keep values; see `Trained.series`."""
        run = self.trained.root / f"taken-{name}"
        copy_folder(self.folder, run)
        return self.trained.series(run.name, paths, steps, folder=run, nudge=nudge)


def measure_noise(
    sides: Sequence[tuple[Trained | TakenOver, Series, Sequence[str]]], steps: Sequence[int], precision: Compute,
    seeds: int | None,
) -> Iterator[Noise]:  # fmt: skip
    """Run each side with nudged starts and show how far that moves it, each time after as many runs as before.

    More runs only widen what may differ. So below float64 two trainers that agree within the noise of the first runs
    agree within that of all: who judges stops there. In float64 more noise may forbid a verdict: all runs are made.

    Args:
        sides: A trainer, the values of its run, and the paths of its arrays.
        steps: Completed steps at which arrays are kept.
        precision: Type in which the products are computed.
        seeds: Nudged runs of each side; None for up to 16, in float64 4.

    Returns:
        The same noise each time, after 2, 4, 8 and 16 runs of each side; after all of them where `seeds` is given.
    """
    most = seeds or (FLOAT64_SEEDS if precision == "float64" else SEEDS)
    ends = [most] if seeds or precision == "float64" else [n for n in (2, 4, 8) if n < most] + [most]
    noise = Noise()
    try:
        for begin, end in pairwise([0, *ends]):
            for trained, base, paths in sides:
                if trained.name not in noise.unmoved:
                    tell(f"noise of {trained.name}: runs {begin + 1} to {end} of at most {most}")
                    _add(noise, trained, base, paths, _nudged(trained, paths, steps, precision, range(begin, end)))
            yield noise
    finally:
        tell()


def _add(
    noise: Noise, trained: Trained | TakenOver, base: Series, paths: Sequence[str], runs: Iterable[Series]
) -> None:
    nudged = False
    for moved in runs:
        _take(noise, base, moved, paths, trained.numbers)
        nudged = True
    if trained.name not in noise.sides + noise.unmoved:
        if nudged:
            noise.sides = (*noise.sides, trained.name)
        else:
            noise.unmoved = (*noise.unmoved, trained.name)


def _nudged(
    trained: Trained | TakenOver, paths: Sequence[str], steps: Sequence[int], precision: Compute, seeds: range
) -> Iterator[Series]:
    """Run with nudged starts, none where the first run cannot be; of processes, the first alone and then several."""

    def run(seed: int) -> tuple[Series, Trace]:
        return trained.series(f"nudged-{seed}", paths, steps, nudge=Nudge(seed, precision))

    first, trace = run(seeds[0])
    if not trace.nudged:
        return
    yield first
    with (
        SameThreadExecutor() if trained.runner.parallel == 1 else ThreadPoolExecutor(trained.runner.parallel) as pool
    ):
        yield from (moved for moved, _ in pool.map(run, seeds[1:]))


def _take(noise: Noise, base: Series, moved: Series, paths: Sequence[str], numbers: Sequence[str]) -> None:
    for path in numbers:
        a, b = base.curve(path), moved.curve(path)
        found = noise.curves.setdefault(path, {})
        for step in a.keys() & b.keys():
            found[step] = max(found.get(step, 0.0), spread_of(a[step], b[step]))
    for path in paths:
        widths = noise.leaves.setdefault(path, {})
        for step in base.kept([path]):
            if path in moved.values.get(step, {}):
                gap = spread_of(base.values[step][path], moved.values[step][path])
                widths[step] = max(widths.get(step, 0.0), gap)
