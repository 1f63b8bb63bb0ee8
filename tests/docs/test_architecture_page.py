"""ARCHITECTURE.md: its layers are those that imports are held to, its packages what they say of themselves."""

import ast
from typing import Any

import pytest

from tests.architecture.modules import LAYERS, layer
from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure, words
from tests.docs.sources import codes

PAGE, METHOD = "ARCHITECTURE.md", "docs/method.md"
BESIDE_THE_SIDES = LAYERS.index({"trackers", "checks"})


def layer_of(place: str) -> int:
    """Return the layer of a package or file, by the package directly in parity/ that it lies in."""
    top, _, inner = place.partition("/")
    name = inner.split("/")[0].removesuffix(".py")
    return layer(name) if top == "parity" else BESIDE_THE_SIDES


def docstring_of(place: str) -> str:
    """Return the first paragraph of what a package or a file says of itself."""
    file = ROOT / place / "__init__.py" if place.endswith("/") else ROOT / place
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return words(text.split("\n\n")[0])


def test_every_package_is_in_its_layer_with_what_it_says_of_itself() -> None:
    rows = pages.table(PAGE, "layer", "package", "what it says of itself").rows
    places = [codes(row[1])[0] for row in rows]
    packages = {
        f"{file.parent.relative_to(ROOT)}/"
        for top in ("parity", "jax_side", "torch_side")
        for file in (ROOT / top).rglob("__init__.py")
    }
    files = {f"parity/{file.name}" for file in (ROOT / "parity").glob("*.py") if not file.name.startswith("__")}
    assert sorted(places) == sorted((packages | files) - {"parity/"})
    assert [int(row[0]) for row in rows] == [layer_of(place) for place in places]
    assert [int(row[0]) for row in rows] == sorted((int(row[0]) for row in rows), reverse=True)
    assert [row[2] for row in rows] == [docstring_of(place) for place in places]


def missing(texts: list[str]) -> list[str]:
    """Return the paths named in texts that do not exist."""
    return [path for text in texts for path in codes(text) if "/" in path and not (ROOT / path).exists()]


def test_the_places_for_new_code_exist() -> None:
    assert missing(pages.table(PAGE, "new", "where").column("where")) == []


def paths_of(cell: str) -> list[str]:
    """Return the paths of a cell, in which a name alone is of the folder of the one before."""
    found: list[str] = []
    for path in codes(cell):
        found.append(path if "/" in path else f"{found[-1].rpartition('/')[0]}/{path}")
    return found


def test_the_way_of_a_leaf_is_in_the_code() -> None:
    cells = pages.table(METHOD, "step", "what happens to the leaf").column("where")
    assert len(cells) > 8
    assert [path for cell in cells for path in paths_of(cell) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [PAGE, "docs/decisions.md"])
def test_the_paths_of_a_page_exist(page: str) -> None:
    texts = pages.read(page).splitlines()
    assert len([path for text in texts for path in codes(text) if path.endswith(".py")]) > 2
    assert missing([text for text in texts if ".py`" in text]) == []


def test_a_path_that_is_gone_is_found() -> None:
    assert missing(["it is in `parity/nowhere.py`, not in `parity/sides.py`"]) == ["parity/nowhere.py"]


PLANTS: dict[Any, list[tuple[str, str]]] = {
    test_every_package_is_in_its_layer_with_what_it_says_of_itself: [
        ("| 5 | `parity/spec/` |", "| 6 | `parity/spec/` |"),
        ("| 1 | `parity/storage/` |", "| 1 | `parity/store/` |"),
        ("Renders; never computes.", "Renders and computes."),
    ],
    test_the_places_for_new_code_exist: [
        ("a row in `parity/state/optimizers.py`", "a row in `parity/state/optimisers.py`"),
    ],
    test_the_way_of_a_leaf_is_in_the_code: [
        ("`run.py` |", "`runs.py` |"),
    ],
}


@pytest.mark.parametrize(("test", "old", "new"), [(test, *plant) for test, rows in PLANTS.items() for plant in rows])
def test_a_page_that_says_something_else_is_found(
    test: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = METHOD if test is test_the_way_of_a_leaf_is_in_the_code else PAGE
    expect_failure(test, page, old, new, monkeypatch)
