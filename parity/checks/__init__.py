"""Compare runs, return records: which checks run on which specs, and what they share.

The suite is imported when one of its names is first used: it alone knows RunSpec and the twins.
"""

from typing import TYPE_CHECKING

from parity.checks.gap import curve_gap
from parity.checks.policy import OnDisk, check_policy_of
from parity.checks.scratch import remove_scratch, scratch_directory
from parity.checks.traces import MOST_STEPS, digest_batches, digest_leaves, trace

if TYPE_CHECKING:
    from parity.checks.suite import (
        CHECKS,
        DEFAULT_STEPS,
        SPEC_CHECKS,
        Request,
        kept_by,
        list_tasks,
        run_checks,
        standard_matrix,
        unfinished,
        with_overflows,
    )

__all__ = [
    "CHECKS",
    "DEFAULT_STEPS",
    "MOST_STEPS",
    "SPEC_CHECKS",
    "OnDisk",
    "Request",
    "check_policy_of",
    "curve_gap",
    "digest_batches",
    "digest_leaves",
    "kept_by",
    "list_tasks",
    "remove_scratch",
    "run_checks",
    "scratch_directory",
    "standard_matrix",
    "trace",
    "unfinished",
    "with_overflows",
]


def __getattr__(name: str) -> object:
    """Import the suite with the first of its names (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'parity.checks' has no attribute {name!r}")
    from parity.checks import suite

    return getattr(suite, name)
