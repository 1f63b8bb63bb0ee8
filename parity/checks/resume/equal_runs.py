"""Equal runs that part: whether by rounding alone, and then the envelope that a resumed run is judged by."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

from parity.checks.judging import (
    RUNS,
    EqualRunsEnvelope,
    Evidence,
    Use,
    choose_steps,
    is_trained_number,
    moved_by_rounding,
    parted_paths,
    uninterrupted_of,
    why_not_rounding,
)
from parity.checks.resume.driver import Driver
from parity.checks.running import Request, Trace

__all__ = ["likely_cause", "measure_envelope"]


def measure_envelope(
    driver: Driver,
    parted: Evidence,
    changing: frozenset[str],
    use: Use,
    run: Callable[[str, Request], Trace],
    pool: Executor,
) -> str:
    """Measure how far equal runs differ, and have the driver judge by it.

    Args:
        driver: Holds the two equal runs; takes uninterrupted and envelope.
        parted: Where the two part.
        changing: Paths whose value changes while the run goes.
        use: What of the trainer's source ran.
        run: Runs the function without a stop, in a folder of a name.
        pool: Runs several at once.

    Returns:
        Why nothing can be judged by it; empty if it can.
    """
    marks, again = driver.reference.marks, driver.again.marks
    if why := why_not_rounding(marks, [again], parted, changing):
        return f"{why} differs, which is no rounding"
    uninterrupted = uninterrupted_of(marks, again, changing, use)
    paths = [p for p in moved_by_rounding(marks, uninterrupted.noise, changing) if is_trained_number(p, marks)]
    steps = choose_steps(marks, paths)
    wanted = dict.fromkeys((*steps, -1), tuple(sorted(paths)))
    asked = replace(driver.whole, keep_steps=wanted)
    runs = list(pool.map(lambda at: run(f"equal-{at}", asked), range(RUNS)))
    if any(trace.steps != driver.reference.steps for trace in runs):
        return "the marks of equal runs differ, which is no rounding"
    if why := why_not_rounding(marks, [trace.marks for trace in runs], parted, changing):
        return f"{why} differs, which is no rounding"
    noise = uninterrupted.noise.union(*(parted_paths(marks, trace.marks) for trace in runs))
    rounded = moved_by_rounding(marks, noise, changing)
    driver.uninterrupted = replace(uninterrupted, noise=noise - rounded, rounded=rounded)
    driver.equal_runs = runs
    driver.envelope = EqualRunsEnvelope(runs, paths, steps)
    return driver.envelope.too_wide(driver.stop_at)


def likely_cause(parted: Evidence, *, at_start: bool, inline: bool) -> str:
    """Return the usual cause of what made two equal runs differ.

    Args:
        parted: Where they part.
        at_start: Whether at the first mark.
        inline: Whether both ran in one process.
    """
    if at_start and inline:
        return "an object outlives the first run: a global, or what a factory returns twice; mode='process' helps"
    if parted.component.startswith("rng"):
        return "a generator is not seeded"
    if parted.component.startswith("data"):
        return "the order of the data is not seeded, or depends on the order of files, of a set or of threads"
    return "something is not seeded, or adds in no fixed order (torch.use_deterministic_algorithms finds that)"
