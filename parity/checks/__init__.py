"""Compare runs, return records: which checks run on which specs, and what they share."""

from parity.checks.gap import curve_gap
from parity.checks.policy import OnDisk
from parity.checks.scratch import remove_scratch, scratch_directory
from parity.checks.suite import (
    CHECKS,
    DEFAULT_STEPS,
    SPEC_CHECKS,
    Request,
    list_tasks,
    run_checks,
    standard_matrix,
    unfinished,
    with_overflows,
)
from parity.checks.traces import MOST_STEPS, digest_batches, digest_leaves, trace

__all__ = [
    "CHECKS",
    "DEFAULT_STEPS",
    "MOST_STEPS",
    "SPEC_CHECKS",
    "OnDisk",
    "Request",
    "curve_gap",
    "digest_batches",
    "digest_leaves",
    "list_tasks",
    "remove_scratch",
    "run_checks",
    "scratch_directory",
    "standard_matrix",
    "trace",
    "unfinished",
    "with_overflows",
]
