"""Copies that ranks of one run have to hold alike: which differences between them count, and which do not."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from parity.capture import Leaf, StateSnapshot
from parity.checks.judging import copies_apart
from parity.checks.running import Mark
from parity.checks.running.rank import MeetingPlace

WHOLE = "replicas of processes [0, 1]"


def marks(*rows: tuple[str, str], copy: str = WHOLE, component: str = "model.params") -> list[Mark]:
    """Return a mark for each pair of what the two ranks hold."""
    found = []
    for step, row in enumerate(rows, 1):
        leaves = {f"rank{at}:w": Leaf("state", component, "float32[2]", held, copy) for at, held in enumerate(row)}
        found.append(Mark(step, StateSnapshot(leaves)))
    return found


def seen(found: list[Mark]) -> list[tuple[str, int, str]]:
    return [(one.path, one.step, one.when) for one in copies_apart(found)]


def test_copies_that_part_and_stay_so_are_named_where_it_began() -> None:
    assert seen(marks(("a", "a"), ("b", "c"), ("d", "e"))) == [("rank1:w", 2, "otherwise than on rank 0")]


def test_copies_that_agree_again_were_let_apart_on_purpose() -> None:
    assert seen(marks(("a", "b"), ("c", "c"), ("d", "e"), ("f", "g"))) == []


def test_copies_that_part_at_the_last_mark_alone_may_be_let_apart_on_purpose() -> None:
    assert seen(marks(("a", "a"), ("b", "b"), ("c", "d"))) == []


def test_what_nothing_calls_a_copy_does_not_count() -> None:
    assert seen(marks(("a", "b"), ("c", "d"), copy="")) == []


def test_another_part_of_the_whole_is_no_copy() -> None:
    found = marks(("a", "b"), ("c", "d"))
    for mark in found:
        one = mark.snapshot.leaves["rank1:w"]
        mark.snapshot.leaves["rank1:w"] = Leaf(one.role, one.component, one.kind, one.digest, "another part")
    assert seen(found) == []


def test_a_scale_that_parts_is_named_before_the_parameters_that_follow_from_it() -> None:
    found = marks(("a", "a"), ("b", "c"), ("d", "e"))
    for mark, scales in zip(found, ((8, 8), (8, 4), (8, 4)), strict=True):
        for at, scale in enumerate(scales):
            mark.snapshot.leaves[f"rank{at}:z"] = Leaf("state", "scaler.scale", "float", str(scale), WHOLE)
    assert [one.component for one in copies_apart(found)] == ["scaler.scale", "model.params"]


def test_nobody_leaves_a_meeting_before_all_have_come() -> None:
    came: list[str] = []
    with MeetingPlace(2) as place, closing(place.point) as first, closing(place.point) as second:

        def wait() -> None:
            first.wait(30)
            came.append("first")
            first.wait(30)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.3)
        assert came == []
        second.wait(30)
        second.wait(30)
        thread.join(30)
    assert came == ["first"]


def test_who_waits_when_a_meeting_is_over_is_let_go() -> None:
    place = MeetingPlace(2)
    with closing(place.point) as point:
        with place, pytest.raises(threading.BrokenBarrierError, match="meeting of the ranks is over"):
            point.wait(0.2)
        with pytest.raises(threading.BrokenBarrierError, match="meeting of the ranks is over"):
            point.wait(5)
