"""docs/peers.md: its figures are those of the pages that measured them, and each row says where it can be read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure

PAGE, MEASURED = "docs/peers.md", "docs/other-tools.md"


def rows() -> dict[str, tuple[str, ...]]:
    """Return the rows of the table by the name of the tool, without its version."""
    return {row[0]: row for row in pages.table(PAGE, "tool", "what it does").rows}


def test_the_figures_are_those_that_were_measured() -> None:
    measured = {name: figures for name, *figures in pages.table(MEASURED, "", "given").rows}
    intro = pages.words(pages.read(MEASURED))
    shown = {tool: row[3] for tool, row in rows().items() if re.search(r"\d", row[3])}
    assert set(shown) == {"parity", "pytest-torch 1.1.1"}
    for tool, figure in shown.items():
        given, found, named, _ = measured[tool.split()[0]]
        said = "all named" if named == given else f"{named} named"
        assert figure == f"{found} of {given}, {said}"
    for tool in rows():
        if re.search(r" \d", tool):
            assert tool in intro, f"{tool} is the version that was given the bugs"


def test_every_row_says_where_it_can_be_read() -> None:
    for tool, row in rows().items():
        links = re.findall(r"\]\(([^)]+)\)", row[4])
        assert links, tool
        for link in links:
            assert link.startswith("https://") or (ROOT / "docs" / link).exists(), f"{tool}: {link}"


PLANTS: dict[Any, list[tuple[str, str]]] = {
    test_the_figures_are_those_that_were_measured: [
        ("86 of 91, 54 named", "85 of 91, 54 named"),
        ("86 of 91, 54 named", "86 of 91, 55 named"),
        ("pytest-torch 1.1.1", "pytest-torch 1.2.0"),
        (
            "whether the resumed run is the same: it judges nothing | |",
            "whether it is the same | 91 of 91, all named |",
        ),
    ],
    test_every_row_says_where_it_can_be_read: [
        ("[other-tools.md](other-tools.md) |\n| ravex", "nowhere |\n| ravex"),
        ("[your-trainer.md](your-trainer.md) |", "[your-trainer.md](gone.md) |"),
    ],
}


@pytest.mark.parametrize(("test", "old", "new"), [(test, *plant) for test, rows in PLANTS.items() for plant in rows])
def test_a_page_that_says_something_else_is_found(
    test: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_failure(test, PAGE, old, new, monkeypatch)
