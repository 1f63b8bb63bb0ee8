"""docs/other-tools.md: as it was written, of the catalogue as it is, and its counts are those of its rows."""

import pytest

from benchmarks.results import is_as_written
from tests.docs.pages import read, tables
from tests.faults.catalog import PLANTED
from tests.faults.live.other_tools import COMMAND, given

PAGE = read("docs/other-tools.md")


def test_the_page_is_as_it_was_written() -> None:
    """Otherwise: python -m tests.faults.live.other_tools"""
    assert is_as_written(PAGE)
    assert not is_as_written(PAGE.replace("| pytest-torch | 9", "| pytest-torch | 8"))
    assert f"`{COMMAND}`" in PAGE


def test_its_bugs_are_those_of_the_catalogue_that_have_a_pytorch_model() -> None:
    _, bugs, _ = tables(PAGE)
    assert [row[0] for row in bugs.rows] == [f"`{entry.name}`" for entry in given()]
    assert len(given()) < sum(not entry.policy for entry in PLANTED)


@pytest.mark.parametrize("tool", [0, 1])
def test_the_counts_are_those_of_the_rows(tool: int) -> None:
    counts, bugs, _ = tables(PAGE)
    cells = [row[2 + tool] for row in bugs.rows]
    assert int(counts.rows[tool][1]) == len(cells)
    assert int(counts.rows[tool][2]) == sum(cell != "not found" for cell in cells)
    if tool == 0:
        named = [cell.startswith("found, names ") and not cell.endswith(("nothing", "(another)")) for cell in cells]
    else:
        named = [cell.startswith(entry.expected) for cell, entry in zip(cells, given(), strict=True)]
    assert int(counts.rows[tool][3]) == sum(named)
