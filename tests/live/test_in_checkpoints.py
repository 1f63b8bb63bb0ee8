"""What the checkpoint holds is named before what each step leaves behind: rows, workspaces, what waits."""

from typing import Any

import numpy as np
import pytest

from parity.capture import Leaf
from parity.checks.judging import Evidence, saved_first
from tests.live.small_loops import State, check, first, trainer, weights


def through_a_workspace(state: State, number: int) -> None:
    np.subtract(state.w, np.sin(number + np.arange(2)), out=state.own_a)
    state.m *= 0.9
    state.m += state.own_a
    state.w = state.w - 0.1 * state.m


def by_rows(state: State, number: int) -> None:
    """The same by names that mean nothing: rows that are written over, and taken when all are."""
    state.own_b[number % 3] = state.w - np.cos(number + np.arange(2))
    if number % 3 == 2:
        state.q = 0.8 * state.q + state.own_b.mean(0)
        state.w = state.w - 0.1 * state.q


def by_a_rate(state: State, number: int) -> None:
    state.own_a[:] = state.w - np.sin(number)
    state.z = state.z * 0.9371
    state.w = state.w - state.z * state.own_a


CASES: tuple[tuple[Any, dict[str, Any], str, int], ...] = (
    (through_a_workspace, {"own_a": np.zeros(2), "m": np.zeros(2)}, "m", 13),
    (by_rows, {"own_b": np.zeros((3, 2)), "q": np.zeros(2)}, "q", 13),
    (by_a_rate, {"own_a": np.zeros(2), "z": 0.3}, "z", 13),
)


@pytest.mark.parametrize(("step", "given", "lost", "stop"), CASES)
def test_what_was_saved_is_named_first(step: Any, given: dict[str, Any], lost: str, stop: int) -> None:
    one = {"scenarios": ("kill",), "stop_at": stop}
    assert check(trainer(weights(**given), step), **one).verdict == "holds"
    assert first(check(trainer(weights(**given), step, (lost,)), **one)) == f"state.{lost}"


def leaf(role: Any, kind: str, digest: str) -> Leaf:
    return Leaf(role, "x", kind, digest)


A, B, C = (leaf("array", "float64[3]", letter * 32) for letter in "abc")
SHORT, STATE = leaf("scalar", "float", "0.5"), leaf("state", "float64[3]", "d" * 32)


@pytest.mark.parametrize(
    ("order", "held", "expected"),
    [
        ("ab", [B], "ba"),
        ("ab", [A, B], "ab"),  # all are there
        ("ab", [C], "ab"),  # none is
        ("as", [SHORT], "as"),  # many files hold 0.5
        ("db", [B], "db"),  # what a framework holds stays: files may hold it in another form
        ("abc", [C], "cab"),
    ],
)
def test_the_order_follows_from_what_a_file_holds(order: str, held: list[Leaf], expected: str) -> None:
    leaves = {"a": A, "b": B, "c": C, "s": SHORT, "d": STATE}
    found = [Evidence(name, name, 3, leaves[name].text, "0", "at the resume") for name in order]
    later = Evidence("w", "w", 4, A.text, "1", "one step after the resume")
    given = saved_first([*found, later], ([leaves], [{}]), lambda: {str(at): one for at, one in enumerate(held)})
    assert "".join(e.path for e in given) == f"{expected}w"


@pytest.mark.parametrize(
    ("component", "expected"), [("optimizer.momentum", "ab"), ("model.params", "ab"), ("a", "ba")]
)
def test_what_is_trained_and_was_never_saved_stays_before_what_was(component: str, expected: str) -> None:
    found = [Evidence(c, name, 3, "1", "0", "at the resume") for name, c in (("a", component), ("b", "b"))]
    given = saved_first(found, ([{"a": A, "b": B}], [{}]), lambda: {"file": B})
    assert "".join(e.path for e in given) == expected


def series(*values: str) -> list[dict[str, Leaf]]:
    """The marks of a run: the weights w by letters, b a copy of them as they were one mark before, a of its own."""
    made = [leaf("array", "float64[3]", letter * 32) for letter in values]
    before = [made[0], *made[:-1]]
    return [
        {"a": leaf("array", "float64[3]", str(at) * 32), "b": one, "w": now}
        for at, (one, now) in enumerate(zip(before, made, strict=True))
    ]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((series(*"opqr"), series(*"0stu")), "ab"),  # a copy that the file holds as something else
        ((series(*"opqr"), [*series(*"0stu")[:3], {**series(*"0stu")[3], "b": C}]), "ba"),  # at times another
        ((series(*"opqr"), series(*"0stu")[:2]), "ba"),  # one mark tells nothing
        ((series(*"pppp"), series(*"0ppp")), "ba"),  # nor do values that stay
        (([{"a": A, "b": B}], []), "ba"),
    ],
)
def test_what_each_step_copies_is_not_what_was_saved(runs: Any, expected: str) -> None:
    found = [Evidence(name, name, 3, "1", "0", "at the resume") for name in "ab"]
    given = saved_first(found, runs, lambda: {"file": runs[0][0]["b"]})
    assert "".join(e.path for e in given) == expected
