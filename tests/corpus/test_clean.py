"""Every loop of the corpus resumes exactly, proven without the tool; and the judge calls none of them red."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import parity
from tests.corpus.proof import differences, run_in_pieces, what_is_left
from tests.corpus.registry import Loop, loops

ALL = loops()
each = pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in ALL])
some_now = pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.id, marks=[pytest.mark.soak] * (at % 4 != 1)) for at, one in enumerate(ALL)]
)
"""All of them, of which three in four wait for the soak: a check costs some seconds, a proof a quarter."""


def test_every_loop_has_a_name_of_its_own_and_names_its_source() -> None:
    assert len({one.id for one in ALL}) == len(ALL) >= 60
    assert [one.id for one in ALL if not one.source] == []


def test_a_third_of_them_have_what_other_corpora_lack() -> None:
    unusual = ("no_grad step", "validation inline", "averages swapped", "target network", "queue", "second optimizer",
               "curriculum", "early stopping", "replay")  # fmt: skip
    assert sum(bool(set(unusual) & set(one.tags)) for one in ALL) >= 20


@some_now
def test_without_the_tool_it_resumes_exactly(one: Loop, tmp_path: Path) -> None:
    through = what_is_left(*run_in_pieces(one.train, tmp_path / "through"), one.volatile)
    assert sum(text.startswith(("float", "bfloat")) or "." in text for text in through.values()), sorted(through)
    resumed = what_is_left(*run_in_pieces(one.train, tmp_path / "resumed", (one.stop_at,)), one.volatile)
    assert differences(through, resumed) == []


@pytest.mark.soak
@each
def test_without_the_tool_it_resumes_exactly_after_two_kills(one: Loop, tmp_path: Path) -> None:
    through, resumed = (
        what_is_left(*run_in_pieces(one.train, tmp_path / str(len(kills)), kills), one.volatile)
        for kills in ((), (one.stop_at, one.stop_at + 2))
    )
    assert differences(through, resumed) == []


def check(one: Loop, **settings: Any) -> None:
    """Check a loop and require `holds`."""
    found = parity.resumes(one.train, steps=one.steps, stop_at=one.stop_at, **settings)
    assert found.verdict == "holds", found.text()


@some_now
def test_it_is_not_called_broken(one: Loop) -> None:
    check(one, mode="inline", scenarios="kill,intervals")


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["inline", "process"])
@each
def test_it_is_not_called_broken_in_any_mode_in_any_scenario(one: Loop, mode: str) -> None:
    check(one, mode=mode, scenarios="all")


@pytest.mark.soak
@pytest.mark.parametrize("stop", range(-3, 4))
@each
def test_it_is_not_called_broken_at_any_stop(one: Loop, stop: int) -> None:
    found = parity.resumes(one.train, steps=one.steps, stop_at=one.stop_at + stop, mode="inline", scenarios="all")
    assert found.verdict == "holds", found.text()
