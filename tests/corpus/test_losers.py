"""What is lost is red and named, whatever its variable is called and however late it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import parity
from tests.corpus.expected import named
from tests.corpus.losers import LOSERS, Loser
from tests.corpus.proof import differences, run_in_pieces, what_is_left

STEPS, STOP = 12, 7
each = pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in LOSERS])
half_now = pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.id, marks=[pytest.mark.soak] * (at % 2)) for at, one in enumerate(LOSERS)]
)
HEALED = ("patience_that_heals",)
"""Runs whose ends are equal if nothing else happens; what was lost decides whether they stop."""


@pytest.mark.breaks_first
@each
def test_without_the_tool_something_is_lost(one: Loser, tmp_path: Path) -> None:
    export = [what_is_left(*run_in_pieces(one.train, tmp_path / str(len(kills)), kills)) for kills in ((), (STOP,))]
    assert bool(differences(*export)) or one.id in HEALED or "float" in one.id, one.id


@half_now
def test_it_is_red_and_named(one: Loser) -> None:
    found = parity.resumes(one.train, steps=STEPS, stop_at=STOP, mode="inline", scenarios="kill")
    assert found.verdict == "broken", found.text()
    assert named(found, one.words), found.text()
