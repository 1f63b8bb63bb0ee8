"""The twins check on any trainer: a training function and its port, from one start, on the same batches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from parity.checks.ports.basis import Basis, build_basis, different_counts, different_settings, nothing_paired
from parity.checks.ports.judge import Judged, PortDifference, exact, judge_pair
from parity.checks.ports.noise import measure_noise
from parity.checks.ports.series import Trained, kept_steps
from parity.checks.ports.session import CrossingBrokenError, Sides, crossing, open_sides, suspects_of
from parity.checks.running import Compute, RunMode, Train
from parity.mapping import PairRule
from parity.results import Crossing

__all__ = ["TwinsDifferError", "assert_twins", "train_alike", "twins_agree"]


def twins_agree(
    train_a: Train,
    train_b: Train,
    *,
    steps: int,
    rules: Sequence[PairRule] = (),
    precision: Compute | None = None,
    mode: RunMode = "auto",
    options: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    name: str | None = None,
    workdir: Path | None = None,
) -> Crossing:
    """Check that two training functions train alike, and return the verdict.

    Both are trained from the start, with one mark per step as for `parity.resumes`. Parameters are paired by the
    rules, and where there are none by their values at the start, which must be equal bit for bit; what belongs to a
    parameter (moments, averages) follows it. Then losses, rates and every array are compared at the same steps.

    Args:
        train_a: The trainer that counts as the reference.
        train_b: Its port.
        steps: Completed steps to train, at least 2; passed to a function that takes `steps`.
        rules: Rows `(path, path of the port)`, or with a transform: `transpose`, `reshape`, or a permutation of the
            axes. `*` stands for the same text on both sides. Needed only for what values and names do not pair.
        precision: Type in which the products are computed; by default the narrowest of the parameters.
        mode: As of `parity.resumes`.
        options: Further keyword arguments for both functions.
        seeds: Runs of each side with nudged starts, by which noise is measured; by default as many as it takes,
            up to 16: 2 where the trainers agree within what these move; in float64 4.
        name: Name of the record; by default those of the functions.
        workdir: Directory that keeps the folders of the runs; by default a temporary one.

    Returns:
        The verdict: `holds`, `broken` with its suspects, or `inconclusive` with the reason.

    Raises:
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, or fails.
        MarkError: A mark that is no whole number or goes backwards.

    Numerics:
        In float64 the loss must agree to 1e-12 relative, and one unit in the last place at the start must not
        move it by 1e-13; arrays must agree to 1e-12 of their largest element, or to three times their own noise where
        that is more. Below, the loss must stay within three times the envelope of runs whose start was nudged by one
        unit in the last place, arrays within ten times their own noise. Learning rates agree to 1e-12 relative in
        float64, to 2**-22 below.
    """
    began = time.perf_counter()
    with ExitStack() as stack:
        sides = open_sides(stack, train_a, train_b, steps, mode, options, workdir)
        a, b = sides.a, sides.b
        if a.marked != b.marked:
            judged, basis = _other_steps(a, b), nothing_paired(precision)
        else:
            seen = [sum(t.component(p) == "model.params" for p in t.state) for t in (a, b)]
            unpaired = (
                f"no parameter could be paired: {a.name} shows {seen[0]}, {b.name} {seen[1]}; give rules, or give "
                "parameters to parity.mark"
            )
            judged, basis = train_alike(sides, rules, precision, seeds, unpaired=unpaired)
    suspects = suspects_of(judged.differences, sides, "twins")
    return crossing("twins", sides, judged, basis, suspects, name=name, began=began)


def train_alike(sides: Sides, rules: Sequence[PairRule], precision: Compute | None, seeds: int | None, *,
                unpaired: str, taken_over: bool = False) -> tuple[Judged, Basis]:  # fmt: skip
    """Compare two trainers from a state that both have to the end.

    Args:
        sides: The trainers, whose marks are at the same steps.
        rules: As of `twins_agree`.
        precision: As of `twins_agree`.
        seeds: As of `twins_agree`.
        unpaired: Why there may be no pair of parameters, for that verdict.
        taken_over: Whether the state was converted: then all of it must be equal at the start, and counts of updates
            that were lost explain what parts; otherwise the parameters, as each makes the rest itself.
    """
    a, b = sides.a, sides.b
    steps = kept_steps(a.marked, max(a.size, b.size))
    (left, again_a), (right, again_b) = (t.series("again", t.state, steps) for t in (a, b))
    for trained, again in ((a, again_a), (b, again_b)):
        if parted := trained.parts(again):
            return Judged("inconclusive", notes=[parted]), nothing_paired(precision)
    start = a.marked[0]
    basis = build_basis(a, b, (left, start), (right, start), rules, precision)
    if not basis.params:
        return Judged("inconclusive", notes=[unpaired]), basis
    unlike = exact(left, right, basis.pairs if taken_over else basis.params, start, start)
    if unlike:
        return Judged("broken", differences=unlike, compared=1), basis
    every = [step for step in left.steps if step in set(right.steps) and step > start]
    noises = measure_noise(((a, left, basis.left), (b, right, basis.right)), steps, basis.precision, seeds)
    judged, noise = judge_pair(left, right, basis.pairs, basis.curves, noises, basis.precision, every)
    counts = different_counts(a, b, again_b, start) if taken_over else []
    return sides.conclude(judged, basis, noise, settings=counts or different_settings(a, b)), basis


def _other_steps(a: Trained, b: Trained) -> Judged:
    at = next((i for i, (x, y) in enumerate(zip(a.marked, b.marked, strict=False)) if x != y), None)
    here, there = (f"{len(t.marked)} marks, the last at step {t.marked[-1]}" for t in (a, b))
    step = a.marked[at] if at is not None else min(a.marked[-1], b.marked[-1])
    return Judged(
        "broken", differences=[PortDifference("counters.step", "marks", "marks", step, here, there, float("inf"))]
    )


class TwinsDifferError(CrossingBrokenError):
    """Two training functions that do not train alike."""


TwinsDifferError.__module__ = "parity"


def assert_twins(train_a: Train, train_b: Train, *, steps: int, **settings: Any) -> Crossing:
    """Assert that two training functions train alike.

    Args:
        train_a: The trainer that counts as the reference.
        train_b: Its port.
        steps: Completed steps to train, at least 2.
        settings: Further arguments of `twins_agree`: `rules`, `precision`, `mode`, `options`, `seeds`, `name`,
            `workdir`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        TwinsDifferError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, or fails.
        MarkError: A mark that is no whole number or goes backwards.

    Example:
        >>> import numpy as np
        >>> def train(folder, steps):
        ...     weights = np.array([1.0, 2.0, 3.0])
        ...     for step in range(steps):
        ...         yield step
        ...         weights -= 0.1 * weights
        >>> def port(folder, steps):
        ...     kernel = np.array([1.0, 2.0, 3.0])
        ...     for step in range(steps):
        ...         yield step
        ...         kernel -= np.float32(0.1) * kernel  # 0.1 is rounded to float32
        >>> try:
        ...     assert_twins(train, port, steps=6, mode="inline")
        ... except TwinsDifferError as error:
        ...     print(error.crossing.suspects[0].path)
        weights (port: kernel)
    """
    found = twins_agree(train_a, train_b, steps=steps, **settings)
    if found.verdict != "holds":
        raise TwinsDifferError(found)
    return found
