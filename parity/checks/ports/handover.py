"""The handover check on any trainer: killed on one side, its checkpoint converted, continued on the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.checks.ports.basis import Basis, build_basis, different_counts, nothing_paired
from parity.checks.ports.judge import Judged, PortDifference, exact, judge_pair
from parity.checks.ports.noise import Noise, TakenOver, measure_noise
from parity.checks.ports.series import Series, Trained, kept_steps
from parity.checks.ports.session import CLOSE, CrossingBrokenError, Sides, crossing, open_sides, suspects_of
from parity.checks.running import Compute, RunMode, Trace, Train, copy_folder
from parity.errors import SpecError, TrainerError
from parity.mapping import Pair, PairRule
from parity.results import Crossing, Suspect

__all__ = ["Convert", "HandoverBrokenError", "assert_handover", "hands_over", "run_conversion"]

Convert = Callable[[Path, Path], object]
"""Called as `convert(source, target)`: reads what one trainer saved, writes what the other resumes from."""


@dataclass
class _Taken:
    """One side's part of a run that was handed over."""

    source: Trained
    trained: Trained
    """Who took over."""
    left: Series
    """What the source held up to its kill."""
    series: Series
    trace: Trace
    when: str


def hands_over(
    train_a: Train,
    train_b: Train,
    *,
    convert: Convert,
    steps: int,
    stop_at: int | None = None,
    back: Convert | None = None,
    rules: Sequence[PairRule] = (),
    precision: Compute | None = None,
    mode: RunMode = "auto",
    options: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    name: str | None = None,
    workdir: Path | None = None,
) -> Crossing:
    """Check that a run can be handed from one trainer to the other in mid-training, and return the verdict.

    The first trainer is killed, its folder converted, and the second continues to the end; with `back`, it is
    killed in turn and the first takes over again. What one holds when it takes over must be what the other held at
    that step, bit for bit; from there on the run must be the uninterrupted one of the first.

    Args:
        train_a: The trainer that begins.
        train_b: The one that takes over.
        convert: Called as `convert(source, target)` with two folders.
        steps: Completed steps at which the run ends, at least 2.
        stop_at: Completed steps at the kill, after a save; by default half of the run.
        back: Converts the other way; None for one handover only.
        rules: As of `twins_agree`.
        precision: As of `twins_agree`.
        mode: As of `parity.resumes`.
        options: Further keyword arguments for both functions.
        seeds: As of `twins_agree`.
        name: Name of the record; by default those of the functions.
        workdir: Directory that keeps the folders of the runs; by default a temporary one.

    Returns:
        The verdict: `holds`, `broken` with its suspects, or `inconclusive` with the reason.

    Raises:
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails; a conversion that
            fails or writes nothing.
        MarkError: A mark that is no whole number or goes backwards.

    Numerics:
        The state that is taken over: bitwise. What follows: as of `twins_agree`.
    """
    began = time.perf_counter()
    stop = steps // 2 if stop_at is None else stop_at
    if not 0 < stop < steps:
        raise SpecError("stop_at", f"must lie between 1 and {steps - 1}, before the run ends, got {stop_at!r}")
    with ExitStack() as stack:
        sides = open_sides(stack, train_a, train_b, steps, mode, options, workdir)
        judged, basis, suspects, at = _hand_over(sides, (convert, back), stop, rules, precision, seeds)
    return crossing("handover", sides, judged, basis, suspects, name=name, began=began, handovers=at)


Handed = tuple[Judged, Basis, list[Suspect], tuple[int, ...]]


def _hand_over(sides: Sides, converts: tuple[Convert, Convert | None], stop: int, rules: Sequence[PairRule],
               precision: Compute | None, seeds: int | None) -> Handed:  # fmt: skip
    a, b = sides.a, sides.b
    nothing = nothing_paired(precision)
    parts = [_take_over((a, b), converts[0], "there", None, stop)]
    if converts[1] is not None:
        parts.append(_take_over((b, a), converts[1], "back", parts[0], (stop + a.steps) // 2))
    taken = tuple(part.trace.marks[0].step for part in parts if part.trace.marks)
    for part in parts:
        if (lost := _not_taken(part, stop, a)) is not None:
            judged = Judged("broken", differences=[lost])
            return judged, nothing, suspects_of([lost], sides, part.when, "at the handover"), taken
    base, again = a.series("again", a.state, _steps_kept(a, parts))
    if parted := a.parts(again):
        return Judged("inconclusive", notes=[parted]), nothing, [], taken
    return _judge(sides, parts, base, rules, precision, seeds, taken)


def _judge(sides: Sides, parts: Sequence[_Taken], base: Series, rules: Sequence[PairRule], precision: Compute | None,
           seeds: int | None, taken: tuple[int, ...]) -> Handed:  # fmt: skip
    a, b = sides.a, sides.b
    basis = build_basis(a, b, (base, taken[0]), (parts[0].series, taken[0]), rules, precision)
    if not basis.params:
        note = "no parameter could be paired: give rules, or give parameters to parity.mark"
        return Judged("inconclusive", notes=[note]), basis, [], taken
    noise: Noise | None = None
    judged, suspects = Judged(), list[Suspect]()
    for part, step in zip(parts, taken, strict=True):
        of = basis if part.trained is b else build_basis(a, a, (base, step), (base, step), (), basis.precision)
        over = basis.pairs if part.trained is b else [pair.turned for pair in basis.pairs]
        unlike = exact(part.left, part.series, over, step, step)
        if unlike:
            unlike = _another_step(part, over, step) or unlike
            judged.verdict, judged.differences = "broken", unlike
            suspects += suspects_of(unlike, sides, part.when, "at the handover")
            break
        every = [one for one in part.series.steps if one > step and one in set(base.steps)]
        known = [noise] if noise is not None else _noise(sides, parts[0], base, basis, seeds)
        found, noise = judge_pair(base, part.series, of.pairs, of.curves, known, basis.precision, every)
        counts = different_counts(part.source, part.trained, part.trace, step)
        judged = sides.conclude(_worse(judged, found), of, noise, settings=counts)
        _doubt_small(judged, noise, a.name)
        suspects += suspects_of(found.differences, sides, part.when)
        if judged.verdict != "holds":
            break
    judged.compared = max(judged.compared, 1)
    return judged, basis, suspects, taken


def _doubt_small(judged: Judged, noise: Noise, name: str) -> None:
    """Leave open what parts by little where the noise of the first trainer could not be measured.

    The envelope is that of the other alone then, and Optax's bias correction in float32, which is rounding, reaches
    4.8 times it.
    """
    if judged.verdict == "broken" and name in noise.unmoved and all(d.amount < CLOSE for d in judged.differences):
        judged.verdict, judged.differences = "inconclusive", []
        said = f"what parts is less than {CLOSE:g} times what passes, by the noise of one side alone"
        judged.notes.insert(0, f"{said}: compare in float64 (jax_enable_x64)")


def _noise(sides: Sides, part: _Taken, base: Series, basis: Basis, seeds: int | None) -> Iterator[Noise]:
    """Measure the noise of the first trainer or, where none of its parameters can be written, of the other."""
    kept, noise = base.kept(basis.left), Noise()
    for noise in measure_noise(((sides.a, base, basis.left),), kept, basis.precision, seeds):
        if noise.sides:
            yield noise
    if noise.sides:
        return
    other = TakenOver(part.trained, part.trained.root / f"converted-{part.when}")
    for second in measure_noise(((other, part.series, basis.right),), kept, basis.precision, seeds):
        second.unmoved = tuple(dict.fromkeys((*noise.unmoved, *second.unmoved)))
        yield second


def _another_step(part: _Taken, pairs: Sequence[Pair], step: int) -> list[PortDifference]:
    """Return that the state is that of another step than the run which took over says; empty where it is not."""
    for other in part.left.kept([pairs[0].a]):
        if other != step and not exact(part.left, part.series, pairs, other, step):
            text = f"{other}, whose state this is"
            return [PortDifference("counters.step", "mark", "mark", step, text, str(step), float("inf"))]
    return []


def _worse(judged: Judged, found: Judged) -> Judged:
    """Return what was found later, with what was compared before."""
    found.compared += judged.compared
    found.arrays = max(found.arrays or 0.0, judged.arrays or 0.0)
    found.notes = [*judged.notes, *found.notes]
    if found.gap.max_rel < judged.gap.max_rel or not found.gap.steps:
        found.gap = judged.gap
    return found


def _take_over(
    pair: tuple[Trained, Trained], convert: Convert, when: str, before: _Taken | None, stop: int
) -> _Taken:
    """Kill one trainer, convert its folder, and let the other continue from it."""
    source, target = pair
    folder = source.root / f"killed-{when}"
    if before is not None:
        copy_folder(source.root / "converted-there", folder)
    kept = [step for step in source.marked if step <= stop]
    again = folder if before is not None else None
    left, trace = source.series(folder.name, source.state, kept, folder=again, kill_step=stop)
    if not any(mark.saved for mark in trace.marks):
        raise TrainerError(
            f"{source.name} saved nothing in its folder before step {stop}; save there, or give a later stop_at"
        )
    there = target.root / f"converted-{when}"
    there.mkdir(parents=True)
    run_conversion(convert, folder, there, f"the conversion from {source.name} to {target.name}")
    run = target.root / f"taken-{when}"
    copy_folder(there, run)
    series, trace = target.series(run.name, target.state, target.marked, folder=run)
    return _Taken(source, target, left, series, trace, when)


def run_conversion(convert: Convert, source: Path, target: Path, named: str = "the conversion") -> None:
    """Convert what one trainer saved into what the other resumes from.

    Args:
        convert: The caller's function.
        source: Folder of the trainer that saved.
        target: An empty folder.
        named: What the conversion is called in messages.

    Raises:
        TrainerError: It fails, or writes nothing.
    """
    try:
        convert(source, target)
    except Exception as error:  # the caller's own function
        raise TrainerError(f"{named} failed with {type(error).__name__}: {error}") from error
    if not any(path.is_file() for path in target.rglob("*")):
        raise TrainerError(f"{named} wrote nothing into the folder it was given as its second argument")


def _not_taken(part: _Taken, stop: int, a: Trained) -> PortDifference | None:
    """Return that a trainer did not continue from what was converted."""
    first = part.trace.marks[0].step if part.trace.marks else None
    if first is not None and a.marked[0] < first <= a.steps:
        return None
    got = "no mark at all" if first is None else f"a run that begins at step {first}"
    return PortDifference(
        "checkpoint.restore", "function", "function", stop, "a run that continues", got, float("inf")
    )


def _steps_kept(a: Trained, parts: Sequence[_Taken]) -> list[int]:
    """Return the steps at which the uninterrupted run keeps its arrays: those at which one that took over did."""
    wanted = set(kept_steps(a.marked, a.size))
    for part in parts:
        kept = [step for step, found in part.series.values.items() if len(found) > len(part.trained.numbers)]
        wanted |= set(kept[:1]) | (set(kept) if a.size * len(kept) < 1 << 30 else set())
    return sorted(wanted & set(a.marked))


class HandoverBrokenError(CrossingBrokenError):
    """A run that changes where it is handed over."""


HandoverBrokenError.__module__ = "parity"


def assert_handover(train_a: Train, train_b: Train, *, convert: Convert, steps: int, **settings: Any) -> Crossing:
    """Assert that a run can be handed from one trainer to the other.

    Args:
        train_a: The trainer that begins.
        train_b: The one that takes over.
        convert: Called as `convert(source, target)` with two folders.
        steps: Completed steps at which the run ends, at least 2.
        settings: Further arguments of `hands_over`: `stop_at`, `back`, `rules`, `precision`, `mode`, `options`,
            `seeds`, `name`, `workdir`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        HandoverBrokenError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails; a conversion that
            fails or writes nothing.
        MarkError: A mark that is no whole number or goes backwards.

    Example:
        >>> import numpy as np
        >>> def trainer(name):
        ...     def train(folder, steps):
        ...         weights, step = np.array([1.0, 2.0, 3.0]), 0
        ...         if (folder / name).exists():
        ...             *weights, step = np.load(folder / name)
        ...         weights, step = np.array(weights), int(step)
        ...         for step in range(step, steps):
        ...             yield step
        ...             weights -= 0.1 * weights
        ...             np.save(folder / name, [*weights, step + 1])
        ...     return train
        >>> def convert(source, target):
        ...     np.save(target / "theirs.npy", np.load(source / "ours.npy"))
        >>> ours, theirs = trainer("ours.npy"), trainer("theirs.npy")
        >>> assert_handover(ours, theirs, convert=convert, steps=6, mode="inline").handovers
        (3,)
    """
    found = hands_over(train_a, train_b, convert=convert, steps=steps, **settings)
    if found.verdict != "holds":
        raise HandoverBrokenError(found)
    return found
