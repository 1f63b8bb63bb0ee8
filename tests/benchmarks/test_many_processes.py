"""The simulation of the gather: every way gives one digest, and the page has the tables that the command prints."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.many_processes import FILES, PROCESSES, gather, lines, manifest
from parity.state import LeafDigest
from tests.docs import pages

SHAPE = (300, 2048)
"""More than one block, whose rows no number of processes below divides."""


def test_every_way_gives_the_digest_of_one_process() -> None:
    ways = [gather(7, SHAPE), gather(7, SHAPE, groups=3), gather(7, SHAPE, owners=4)]
    whole, rows = LeafDigest(SHAPE, np.float32), -(-SHAPE[0] // 7)
    for start in range(0, SHAPE[0], rows):
        whole.add((start, 0), np.full((min(rows, SHAPE[0] - start), SHAPE[1]), start, np.float32))
    assert {way.text for way in ways} == {whole.text()}


def test_shares_send_process_0_digests_alone() -> None:
    alone, shared = gather(7, SHAPE), gather(7, SHAPE, owners=4)
    assert alone.megabytes > 1 > 0.01 > shared.megabytes
    assert alone.before == 0 < shared.before


def test_more_processes_than_rows_are_as_many_as_there_are_rows() -> None:
    assert gather(1000, (10, 8)).megabytes == gather(10, (10, 8)).megabytes


def test_the_tables_of_the_page_are_those_of_the_command() -> None:
    """Headers, numbers of processes, and what no clock tells; seconds are of the run that was measured."""
    printed = list(lines(()))
    page = pages.read("docs/scale.md")
    assert [line for line in printed if line.startswith("| ")] == [
        line for line in page.splitlines() if line in printed and line.startswith("| ")
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| 1")]
    assert [row[0] for row in rows] == [f"{count:,}" for count in PROCESSES] * 2
    for row, count in zip(rows[len(PROCESSES) :], PROCESSES, strict=True):
        assert row[1:3] == [f"{FILES * count:,}", f"{manifest(count).megabytes:.2f}"]


PLANTS = {
    test_the_tables_of_the_page_are_those_of_the_command: [
        ("| 1,000 | 3,000 | 0.40 |", "| 1,000 | 3,000 | 0.41 |"),
        ("| leader, s |", "| leader, ms |"),
    ],
}


@pytest.mark.parametrize(("test", "old", "new"), [(test, *plant) for test, rows in PLANTS.items() for plant in rows])
def test_a_page_that_says_something_else_is_found(
    test: Callable[[], None], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.expect_failure(test, "docs/scale.md", old, new, monkeypatch)


@pytest.mark.soak
def test_the_bytes_of_the_page_are_those_that_are_sent() -> None:
    row = next(line for line in pages.read("docs/scale.md").splitlines() if line.startswith("| 10 | 5"))
    assert row.split("|")[2].strip() == f"{410 * gather(10).megabytes:,.0f}"
