"""Findings as a record keeps them: evidence with its scenario, advice and amount."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.checks.judging.evidence import Evidence
from parity.results import Suspect
from parity.state import measure_arrays

__all__ = ["each_once", "measured", "suspect"]


def suspect(e: Evidence, scenario: str, advice: str = "") -> Suspect:
    """Return evidence as a suspect of a record.

    Args:
        e: The evidence.
        scenario: Name of the scenario in which it was found.
        advice: What to do about it; empty for none.
    """
    return Suspect(**e._asdict(), scenario=scenario, advice=advice)


def measured(
    suspects: Sequence[Suspect], expected: Mapping[str, Any], got: Mapping[str, Any], step: int
) -> list[Suspect]:
    """Return suspects with the amounts by which their arrays differ, of those that were seen at a step.

    Args:
        suspects: Suspects of a record; those of other steps, or without both values, stay as they are.
        expected: Path to value in the uninterrupted run.
        got: Path to value in the resumed one.
        step: Completed steps at which the values were kept.
    """
    return [
        replace(one, **_amount(expected[one.path], got[one.path]))
        if one.step == step and one.path in expected and one.path in got
        else one
        for one in suspects
    ]


def each_once(found: Iterable[Suspect]) -> list[Suspect]:
    """Return the last suspect of each path."""
    return list({one.path: one for one in found}.values())


def _amount(expected: Any, got: Any) -> dict[str, Any]:
    """Return by how much two arrays differ, as fields of a suspect."""
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        return {}
    same = expected.shape == got.shape and expected.dtype == got.dtype and expected.dtype.kind in "fiub"
    return measure_arrays(expected, got)._asdict() if same else {}
