"""Compare runs, return records: which checks run on which specs, and what they share.

Everything is imported when it is first used: a check on any trainer needs neither a RunSpec nor twins.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.checks.cache import read_durations, write_durations
    from parity.checks.drill import (
        check_twin_policy,
        check_twin_resume,
        check_twin_scenarios,
        drill_spec,
        epochs_spec,
        policy_spec,
        train_command,
    )
    from parity.checks.gap import curve_gap
    from parity.checks.policy import OnDisk, check_policy_of
    from parity.checks.runs import compare_runs
    from parity.checks.scenarios import MEANINGS, QUICK, scenario_names
    from parity.checks.scratch import remove_scratch, scratch_directory
    from parity.checks.suite import (
        CHECKS,
        DEFAULT_STEPS,
        SPEC_CHECKS,
        SuiteRequest,
        Task,
        list_tasks,
        run_checks,
        standard_matrix,
        unfinished,
        with_overflows,
    )
    from parity.checks.traces import MOST_STEPS, digest_batches, digest_leaves, trace
    from parity.checks.translating import measure_optimizer

__all__ = [
    "CHECKS",
    "DEFAULT_STEPS",
    "MEANINGS",
    "MOST_STEPS",
    "QUICK",
    "SPEC_CHECKS",
    "OnDisk",
    "SuiteRequest",
    "Task",
    "check_policy_of",
    "check_twin_policy",
    "check_twin_resume",
    "check_twin_scenarios",
    "compare_runs",
    "curve_gap",
    "digest_batches",
    "digest_leaves",
    "drill_spec",
    "epochs_spec",
    "list_tasks",
    "measure_optimizer",
    "policy_spec",
    "read_durations",
    "remove_scratch",
    "run_checks",
    "scenario_names",
    "scratch_directory",
    "standard_matrix",
    "trace",
    "train_command",
    "unfinished",
    "with_overflows",
    "write_durations",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used (PEP 562), and what needs a RunSpec only for a name that does."""
    if name not in __all__:
        raise AttributeError(f"module 'parity.checks' has no attribute {name!r}")
    from parity.checks import cache, gap, policy, runs, scenarios, scratch, traces, translating

    for module in (cache, gap, policy, scenarios, runs, scratch, traces, translating):
        if name in module.__all__:
            return getattr(module, name)
    from parity.checks import drill, suite

    return getattr(drill if name in drill.__all__ else suite, name)
