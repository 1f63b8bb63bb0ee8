"""The code of docs/save-anything.md runs as it stands, in order, and gives back what was saved."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.support.tree_states import same

pytestmark = pytest.mark.takes_seconds

PAGE = "docs/save-anything.md"


def run_page(home: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all code of the page in a folder, and return what it defines."""
    names: dict[str, Any] = {"__name__": "page"}
    patch.chdir(home)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Orbax's, on a restore without a template
        for block in re.findall(r"```python\n(.*?)\n```", pages.read(PAGE), re.DOTALL):
            exec(block, names)
    return names


def test_the_page_runs_and_gives_back_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_page(tmp_path, monkeypatch)
    assert same(names["state"], names["same"]) == []
    assert names["plain"]["params"]["w"].tobytes() == names["state"]["params"]["w"].tobytes()
    assert names["restored"]["optimizer"].opt_state[0].mu.kernel.shape == (2, 3)
    assert names["by_orbax"]["step"] == names["by_torch"]["step"] == 7
    assert names["items"]["config"]["position"] == [40, 0]


@pytest.mark.parametrize(
    ("words", "others"),
    [('found.extra == ("unused",)', "found.extra == ()"), ("allow_extra=True", "")],
)
def test_a_page_that_says_something_else_is_noticed(
    words: str, others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = pages.read(PAGE)
    assert words in text
    monkeypatch.setattr(pages, "read", lambda _: text.replace(words, others))
    with pytest.raises((AssertionError, RuntimeError, SyntaxError), match=r"^"):
        run_page(tmp_path, monkeypatch)
