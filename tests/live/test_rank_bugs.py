"""Planted bugs of several ranks are found and named by the first line; clean trainers of several ranks stay green."""

import re

import pytest

import parity
from parity.results import Resumption
from tests.live.rank_bugs import BUGS, CLEAN, RankBug

UNNAMED: frozenset[str] = frozenset()
"""Bugs that are found, and whose first line is of another component; the bar is 28 of 30."""
SOON = ("jax, another rank's shard",)
"""Of these so many are in the ordinary tests; PyTorch takes three times as long to be imported."""


def check(bug: RankBug) -> Resumption:
    return parity.resumes(
        bug.train, steps=9, stop_at=5, processes=bug.processes, scenarios="kill",
        options={**bug.options, "fault": bug.fault},
    )  # fmt: skip


def named_first(bug: RankBug, found: Resumption) -> bool:
    first = found.suspects[0]
    return first.component.startswith(bug.named) and re.match(bug.rank, first.path) is not None


def cases(bugs: tuple[RankBug, ...]) -> list[object]:
    return [pytest.param(bug, id=bug.name, marks=[pytest.mark.soak] * (bug.name not in SOON)) for bug in bugs]


@pytest.mark.parametrize("bug", cases(BUGS))
def test_a_bug_of_ranks_is_found_and_named(bug: RankBug) -> None:
    found = check(bug)
    assert found.verdict == "broken", found.text()
    assert bug.always == any(one.when.startswith("otherwise than on") for one in found.suspects), found.text()
    assert named_first(bug, found) == (bug.name not in UNNAMED), found.text()


@pytest.mark.parametrize("bug", cases(CLEAN))
def test_a_clean_trainer_of_ranks_is_green(bug: RankBug) -> None:
    found = check(bug)
    assert found.verdict == "holds", found.text()


def test_the_table_is_whole() -> None:
    """At least 30 bugs, of which 28 are named first, and at least 12 clean trainers, on each of the three kinds."""
    names = [bug.name for bug in (*BUGS, *CLEAN)]
    assert len(set(names)) == len(names)
    assert len(BUGS) >= 30
    assert len(BUGS) - len(UNNAMED) >= 28
    assert {bug.name for bug in BUGS} >= UNNAMED
    assert len(CLEAN) >= 12
    assert set(SOON) <= set(names)
    for kind in ("ddp", "fsdp", "jax"):
        assert sum(name.startswith(kind) for name in names) >= 10
