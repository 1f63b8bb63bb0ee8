"""Running variances over n - 1 of another number of values: images in place of pixels, or one part of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.checks.proving.effective import one_value
from parity.checks.proving.slots import LeafArrays, names_of

__all__ = ["running_counts_cause", "running_forms_cause"]

CONSTANT = 1e-8
"""Relative distance of ratios of single elements that are one."""

WHOLE = 1e-6
"""Relative distance of a number of values from a whole one: ratios are known to 1e-12 or so."""

LARGEST = 1024
"""Numbers of values that are tried for the run in which all leaves have one."""


def running_counts_cause(
    before: LeafArrays, after: Sequence[LeafArrays], leaves: Sequence[str], weights: Sequence[float]
) -> str:
    """Return that two take multiples of one statistic of a batch at one weight, and of which numbers of values.

    Args:
        before: Values before the update.
        after: Of the trainer and of the port after it.
        leaves: Running statistics that part.
        weights: Of a new batch that are tried.
    """
    for weight in weights:
        ratios: dict[str, float] = {}
        for leaf in leaves:
            one, two = ((each[leaf] - (1 - weight) * before[leaf]).ravel() for each in after)
            if one.size < 3 or not (np.all(one) and np.ptp(one)):
                return ""
            ratio = one_value({str(i): float(x) for i, x in enumerate(two / one)}, CONSTANT)
            if ratio is None or ratio <= 0.0:
                break
            ratios[leaf] = ratio
        else:
            said = _counts(list(ratios.values()))
            low, high = min(ratios.values()), max(ratios.values())
            times = f"{low:.6g}" if high - low <= CONSTANT * high else f"{low:.6g} to {high:.6g}"
            return (
                f"running variance: of a batch the port takes {times} times what the trainer does, both at weight "
                f"{weight:g}, on {names_of(list(ratios))}{said}"
            )
    return ""


_FORMS = (
    ("the root of what the trainer does (a standard deviation)", lambda a, b: b * b / a),
    ("the square of what the trainer does (the trainer a standard deviation)", lambda a, b: b / (a * a)),
    ("one over what the trainer does", lambda a, b: a * b),
)
"""What is one number at all elements where the port's statistic of a batch is that function of the trainer's."""


def running_forms_cause(
    before: LeafArrays, after: Sequence[LeafArrays], leaves: Sequence[str], weights: Sequence[float]
) -> str:
    """Return which function of the trainer's statistic of a batch the port takes; else that it takes another one.

    Args:
        before: As all others of `running_counts_cause`.
        after: Likewise.
        leaves: Likewise.
        weights: Likewise.
    """
    for weight in weights:
        taken = [[(each[leaf] - (1 - weight) * before[leaf]).ravel() / weight for each in after] for leaf in leaves]
        if any(one.size < 3 or not np.ptp(one) or not one.all() or not two.all() for one, two in taken):
            continue
        for said, form in _FORMS:
            numbers = [one_value({str(i): float(x) for i, x in enumerate(form(*pair))}, CONSTANT) for pair in taken]
            if None not in numbers:
                return f"running variance: of a batch the port takes {said}, on {names_of(list(leaves))}"
    return (
        f"running statistics: of a batch the port takes other values than the trainer, and no multiple of them, on "
        f"{names_of(list(leaves))}; parameters move alike"
    )


def _counts(ratios: Sequence[float]) -> str:
    """Return the numbers n of values whose n / (n - 1) give ratios, where one run has one number for all leaves."""
    kinds = sorted({float(f"{ratio:.9g}"): ratio for ratio in ratios}.values())
    if len(kinds) < 2:
        return ""  # any ratio is that of many pairs of numbers
    found = []
    for fixed, other, power in (("the port", "the trainer", 1), ("the trainer", "the port", -1)):
        for count in range(2, LARGEST):
            # n / (n - 1) of the other run is that of this one by the ratio
            shares = [count / (count - 1) / ratio**power for ratio in kinds]
            if any(share <= 1.0 for share in shares):
                continue
            numbers = [share / (share - 1.0) for share in shares]
            if all(abs(n - round(n)) <= WHOLE * n and round(n) > 1 for n in numbers):
                whole = ", ".join(str(n) for n in sorted({round(n) for n in numbers}))
                found.append(f": n / (n - 1) of n = {count} in {fixed}, of n = {whole} in {other}")
    return found[0] if len(found) == 1 else ""
