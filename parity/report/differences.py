"""Two runs, or two checkpoints, compared on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from parity.report.layout import print_wrapped
from parity.report.terminal import open_console
from parity.report.words import clean, short
from parity.results import RunComparison
from parity.state import Difference

__all__ = ["print_differences", "print_runs"]

MOST_LEAVES = 5
"""Leaves of one checkpoint that the comparison of two runs names."""


def print_differences(differences: Sequence[Difference], file: IO[str]) -> None:
    """Print a line for each leaf in which two checkpoints differ, then how many do.

    Args:
        differences: The leaves, as `parity.checkpoints.compare` returns them.
        file: Where it is printed.
    """
    console = open_console(file)
    for difference in differences:
        print_wrapped(console, _leaf(difference), indent=2)
    print_wrapped(console, _count(len(differences)))


def print_runs(comparison: RunComparison, file: IO[str]) -> None:
    """Print what two runs have in common and where they differ, the verdict last.

    Args:
        comparison: The two runs, as `compare_runs` returns them.
        file: Where it is printed.
    """
    console = open_console(file)
    for name, (left, right) in comparison.fields.items():
        print_wrapped(console, clean(f"spec: {name} is {_value(left)} and {_value(right)}"))
    first = comparison.divergence
    print_wrapped(
        console,
        f"steps: {comparison.steps} in both, largest relative difference of the loss "
        f"{short(comparison.max_rel_diff)}",
    )
    if first is not None and first.quantity == "missing":
        print_wrapped(
            console, f"first divergence: only the {'first' if first.expected else 'second'} run has step {first.step}"
        )
    elif first is not None:
        found = f"step {first.step}, {first.quantity}: {first.expected} and {first.got}"
        print_wrapped(console, clean(f"first divergence: {found}"))
    if comparison.validations:
        steps = ", ".join(map(str, comparison.validations[:MOST_LEAVES]))
        more = ", ..." if len(comparison.validations) > MOST_LEAVES else ""
        print_wrapped(console, f"validations differ at {len(comparison.validations)} steps: {steps}{more}")
    for step, differences in comparison.checkpoints.items():
        print_wrapped(console, f"checkpoint {step}: {_count(len(differences))}")
        for difference in differences[:MOST_LEAVES]:
            print_wrapped(console, _leaf(difference), indent=2)
        if len(differences) > MOST_LEAVES:
            print_wrapped(console, f"and {len(differences) - MOST_LEAVES} more", indent=2)
    words = {"holds": "the runs are equal bit for bit", "broken": "the runs differ"}
    nothing = "nothing compared: the runs share no step and no checkpoint"
    print_wrapped(console, words.get(comparison.verdict, nothing))


def _leaf(difference: Difference) -> str:
    return clean(f"{difference.leaf}: {difference.kind}: {difference.detail}")


def _count(number: int) -> str:
    if not number:
        return "every leaf is equal bit for bit"
    return f"{number} leaf differs" if number == 1 else f"{number} leaves differ"


def _value(value: object) -> str:
    return "not there" if value is None else repr(value)
