"""The twins' suite: which checks run on which specs, the drill of kills, the policy check, twins and handover.

Everything is imported when it is first used: a command that only names the checks needs neither a RunSpec nor twins.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.reference.cache import read_durations, write_durations
    from parity.reference.drill import (
        check_twin_policy,
        check_twin_resume,
        check_twin_scenarios,
        drill_spec,
        epochs_spec,
        policy_spec,
        train_command,
    )
    from parity.reference.placements import NamedMesh, fitting_placements, pairs_of, parse_placement
    from parity.reference.policy import OnDisk, check_policy_of
    from parity.reference.suite import (
        ASKED,
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

__all__ = [
    "ASKED",
    "CHECKS",
    "DEFAULT_STEPS",
    "SPEC_CHECKS",
    "NamedMesh",
    "OnDisk",
    "SuiteRequest",
    "Task",
    "check_policy_of",
    "check_twin_policy",
    "check_twin_resume",
    "check_twin_scenarios",
    "drill_spec",
    "epochs_spec",
    "fitting_placements",
    "list_tasks",
    "pairs_of",
    "parse_placement",
    "policy_spec",
    "read_durations",
    "run_checks",
    "standard_matrix",
    "train_command",
    "unfinished",
    "with_overflows",
    "write_durations",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used (PEP 562), and what needs a RunSpec only for a name that does."""
    if name not in __all__:
        raise AttributeError(f"module 'parity.reference' has no attribute {name!r}")
    from parity.reference import cache, policy

    for module in (cache, policy):
        if name in module.__all__:
            return getattr(module, name)
    from parity.reference import drill, placements, suite

    return next(getattr(module, name) for module in (drill, placements, suite) if name in module.__all__)
