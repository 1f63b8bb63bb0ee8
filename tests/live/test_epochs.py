"""Epochs are told by how a counter grows, whatever it is called."""

import pytest

from parity.capture import Walk
from parity.checks.resume.scenarios import epoch_ends
from parity.checks.running.run import Mark


def marks_of(name: str, values: list[object]) -> list[Mark]:
    found = []
    for at, value in enumerate(values):
        walk = Walk()
        walk.root("step", at)
        walk.root(name, value)
        found.append(Mark(step=at, snapshot=walk.finish()))
    return found


@pytest.mark.parametrize("name", ["epoch", "e", "generation"])
def test_a_counter_that_grows_every_few_steps_counts_epochs(name: str) -> None:
    assert epoch_ends(marks_of(name, [0, 0, 0, 1, 1, 1, 2, 2, 2])) == [3, 6]
    assert epoch_ends(marks_of(name, [4, 4, 5, 5, 5, 6, 6, 7, 7])) == [2, 5, 7]


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2, 3, 4],  # of steps
        [0, 0, 2, 2, 4, 4],  # not by one
        [0, 0, 1, 1, 0, 0],  # down again
        [0, 0, 0, 0, 1, 1, 2, 2, 3],  # what waited for its begin
        [0, 0, 1, 1, 2, 2, 2, 2, 2],  # what ended
        [0, 0, 0, 1, 1],  # once
        [0.0, 0.0, 1.0, 1.0, 2.0, 2.0],
        ["0", "0", "1", "1", "2", "2"],
    ],
)
def test_other_numbers_do_not(values: list[object]) -> None:
    assert epoch_ends(marks_of("epoch", values)) == []


def test_a_variable_that_is_not_there_at_every_mark_counts_nothing() -> None:
    here, gone = marks_of("epoch", [0, 0, 1, 1, 2, 2]), marks_of("other", [0])
    assert epoch_ends([*gone, *here]) == []
