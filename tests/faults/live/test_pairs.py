"""Two faults of the catalogue at once, drawn by Hypothesis: one of them leads, and none hides the other.

A trainer takes its fault as a text; two of them are given as one text that equals both, so that no trainer changes.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parity
from parity.results import Resumption
from tests.faults.catalog import PLANTED
from tests.faults.live.entry import Entry


class Both(str):
    """A text that equals either of two."""

    __slots__ = ("parts",)

    parts: frozenset[str]

    def __new__(cls, *parts: str) -> Both:
        made = super().__new__(cls, "+".join(parts))
        made.parts = frozenset(parts)
        return made

    def __eq__(self, other: object) -> bool:
        return other in self.parts

    def __ne__(self, other: object) -> bool:
        return other not in self.parts

    def __hash__(self) -> int:
        return super().__hash__()

    def __contains__(self, part: object) -> bool:
        return part in self.parts

    def startswith(self, prefix: Any, *bounds: Any) -> bool:
        return any(part.startswith(prefix, *bounds) for part in self.parts)


def variant(entry: Entry) -> Any:
    """Return what two entries must share to be planted in one run."""
    return entry.train, str(sorted(entry.options.items())), entry.steps, entry.stop_at, entry.scenarios


BROKEN = [entry for entry in PLANTED if not entry.policy]
PAIRS = [
    pair
    for pair in itertools.combinations(BROKEN, 2)
    if variant(pair[0]) == variant(pair[1]) and pair[0].id != pair[1].id
]
"""Entries of one trainer, with the same options and scenarios.

Two ways to plant one bug may cancel each other: a mode that is wrong in both runs differs in none.
"""


def check(first: Entry, second: Entry) -> Resumption:
    assert first.train is not None
    fault = Both(first.keywords["fault"], second.keywords["fault"])
    options = {**first.options, "fault": fault}
    return parity.resumes(
        first.train,
        steps=first.steps,
        stop_at=first.stop_at,
        mode="inline",
        scenarios=first.scenarios,
        options=options,
    )


def require_both(first: Entry, second: Entry) -> None:
    """Both planted: broken, and the first suspect is of one of the two."""
    found = check(first, second)
    assert found.verdict == "broken", f"{first.name} + {second.name}\n{found.text()}"
    named = found.components[0].startswith((*first.expected, *second.expected))
    assert named, f"{first.name} {first.expected} + {second.name} {second.expected}\n{found.text()}"


def test_pairs_are_many() -> None:
    assert len(PAIRS) >= 300
    both = Both("a", "b")
    assert [both == one for one in "abc"] == [True, True, False]
    assert [one in both for one in "abc"] == [True, True, False]


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PAIRS))
def test_of_two_faults_one_leads(pair: tuple[Entry, Entry]) -> None:
    require_both(*pair)


@pytest.mark.soak
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PAIRS))
def test_of_many_pairs_of_faults_one_leads(pair: tuple[Entry, Entry]) -> None:
    require_both(*pair)
