"""Checks on any trainer, and what all checks share: tolerances, distances, progress, scratch directories.

Everything is imported when it is first used: a check on any trainer needs neither a RunSpec nor twins.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.checks.criteria import (
        ENVELOPE_LIMIT,
        FLOAT64_LIMIT,
        FLOAT64_NOISE_FLOOR,
        CurveGap,
        CurveVerdict,
        curve_gap,
        envelope_multiple,
        is_near,
        judge_curve,
    )
    from parity.checks.noise import FLOOR_ULPS, SEEDS, WINDOW, envelope, one_ulp_away, ulp, widest
    from parity.checks.progress import OnStep, announce, hearing, ignore_step, last_step
    from parity.checks.runs import compare_runs
    from parity.checks.scenarios import MEANINGS, QUICK, scenario_names
    from parity.checks.scratch import remove_scratch, scratch_directory
    from parity.checks.traces import (
        MOST_STEPS,
        RESUMED_LABELS,
        digest_batches,
        digest_leaves,
        losses,
        trace,
        trace_validations,
    )
    from parity.checks.translating import least_squares, measure_optimizer

__all__ = [
    "ENVELOPE_LIMIT",
    "FLOAT64_LIMIT",
    "FLOAT64_NOISE_FLOOR",
    "FLOOR_ULPS",
    "MEANINGS",
    "MOST_STEPS",
    "QUICK",
    "RESUMED_LABELS",
    "SEEDS",
    "WINDOW",
    "CurveGap",
    "CurveVerdict",
    "OnStep",
    "announce",
    "compare_runs",
    "curve_gap",
    "digest_batches",
    "digest_leaves",
    "envelope",
    "envelope_multiple",
    "hearing",
    "ignore_step",
    "is_near",
    "judge_curve",
    "last_step",
    "least_squares",
    "losses",
    "measure_optimizer",
    "one_ulp_away",
    "remove_scratch",
    "scenario_names",
    "scratch_directory",
    "trace",
    "trace_validations",
    "ulp",
    "widest",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'parity.checks' has no attribute {name!r}")
    from parity.checks import criteria, noise, progress, runs, scenarios, scratch, traces, translating

    modules = (criteria, noise, progress, scenarios, runs, scratch, traces, translating)
    return next(getattr(module, name) for module in modules if name in module.__all__)
