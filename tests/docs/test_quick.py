"""`make test-quick` runs something of every part of the tests, and marks at cases name cases that are there."""

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from tests.docs.pages import ROOT
from tests.faults.catalog import FAULTS
from tests.quick import ABSENT, FIRST, FOLDERS, LATER, covering, is_named, is_quick, may_hold_quick

TESTS = ROOT / "tests"
SOAKING = "convert/test_convert.py::test_a_conversion_killed_at_a_hundred_moments_leaves_nothing_that_looks_whole"
"""A soak test in a folder that is quick."""

PLANTED = "faults/test_planted.py::test_fault_is_red_and_named"


def marks_in(text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield function (empty for the module), mark and cases of each of the two marks in the text of a file."""

    def of(node: ast.expr) -> Iterator[tuple[str, tuple[str, ...]]]:
        for part in node.elts if isinstance(node, ast.List) else [node]:
            name = ast.unparse(part.func if isinstance(part, ast.Call) else part).removeprefix("pytest.mark.")
            if name in (FIRST, LATER):
                yield name, tuple(map(ast.literal_eval, part.args)) if isinstance(part, ast.Call) else ()

    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from (("", *found) for found in of(node.value))
        elif isinstance(node, ast.FunctionDef):
            yield from ((node.name, *found) for one in node.decorator_list for found in of(one))


@functools.cache
def marked() -> Mapping[tuple[str, str, str], tuple[str, ...]]:
    """Return file, function and mark to the cases that are named, of all tests; they are parsed once."""
    found = {}
    for path in TESTS.glob("*/test_*.py"):
        for function, mark, cases in marks_in(path.read_text(encoding="utf-8")):
            found[str(path.relative_to(TESTS)), function, mark] = cases
    return MappingProxyType(found)


def untrue(found: Mapping[tuple[str, str, str], tuple[str, ...]], quick: set[str], absent: set[str]) -> list[str]:
    """Return the folders of which nothing is said, or two things, and the marks that say what the folder says."""
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    first = {file.partition("/")[0] for file, _, mark in found if mark == FIRST}
    out = [f"{folder}: neither quick nor absent" for folder in sorted(folders - first - quick - absent)]
    out += [f"{folder}: quick and absent" for folder in sorted((first | quick) & absent)]
    out += [f"{folder}: no such folder" for folder in sorted((quick | absent) - folders)]
    for file, function, mark in sorted(found):
        in_quick = file.partition("/")[0] in quick
        if in_quick and mark == FIRST:
            out.append(f"{file}::{function}: its folder is quick already")
        if not in_quick and mark == LATER and (file, "", FIRST) not in found:
            out.append(f"{file}::{function}: its folder is not quick anyway")
    return out


@pytest.mark.takes_seconds
def test_every_folder_of_tests_has_quick_ones_or_a_reason_and_no_mark_is_idle():
    assert untrue(marked(), {*FOLDERS}, {*ABSENT}) == []


@pytest.mark.parametrize(
    ("quick", "absent", "more", "complaint"),
    [
        ({*FOLDERS} - {"parity"}, {*ABSENT}, {}, "parity: neither quick nor absent"),
        ({*FOLDERS}, {*ABSENT, "parity"}, {}, "parity: quick and absent"),
        ({*FOLDERS}, {*ABSENT} - {"soak"}, {}, "soak: neither quick nor absent"),
        ({*FOLDERS, "moved"}, {*ABSENT}, {}, "moved: no such folder"),
        (
            {*FOLDERS},
            {*ABSENT},
            {("cli/test_x.py", "test_y", FIRST): ()},
            "cli/test_x.py::test_y: its folder is quick",
        ),
        (
            {*FOLDERS},
            {*ABSENT},
            {("live/test_x.py", "test_y", LATER): ()},
            "live/test_x.py::test_y: its folder is not",
        ),
    ],
)
def test_what_is_wrong_is_noticed(quick, absent, more, complaint):
    assert any(found.startswith(complaint) for found in untrue(marked() | more, quick, absent))


def test_a_file_is_left_unread_only_where_no_test_is_marked():
    named = {file for file, _, mark in marked() if mark == FIRST}
    assert all(may_hold_quick(TESTS / file) for file in named)
    assert may_hold_quick(TESTS / "cli" / "test_help.py")
    unread = {str(path.relative_to(TESTS)) for path in TESTS.glob("*/test_*.py") if not may_hold_quick(path)}
    assert "soak/test_matrix.py" in unread
    assert not unread & named


def test_marks_are_found_in_a_text():
    text = (
        "pytestmark = [pytest.mark.slow, pytest.mark.takes_seconds]\n"
        "@pytest.mark.breaks_first('a', 'b-c')\n@pytest.mark.parametrize('x', [1])\ndef test_x(x): ...\n"
    )
    assert list(marks_in(text)) == [("", LATER, ()), ("test_x", FIRST, ("a", "b-c"))]


def test_one_planted_fault_of_each_group_is_quick():
    named = marked()[(*PLANTED.split("::"), FIRST)]
    groups = [fault.group for fault in FAULTS for side in fault.sides if f"{fault.id}-{side}" in named]
    assert sorted(groups) == sorted({fault.group for fault in FAULTS})


LISTING = """
import sys, pytest
class Listing:
    def pytest_collection_finish(self, session):
        print(*("quick " + item.nodeid for item in session.items), sep="\\n")
    def pytest_deselected(self, items):
        print(*("other " + item.nodeid for item in items), sep="\\n")
sys.exit(pytest.main(sys.argv[1:], plugins=[Listing()]))
"""


def collected(files: set[str]) -> tuple[set[str], set[str]]:
    """Return the cases of files that `-m quick` selects, and the others, without the folder that all are in."""
    options = ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "--collect-only", "-q"]
    command = [sys.executable, "-c", LISTING, *options, "-m", "quick", *(f"tests/{file}" for file in sorted(files))]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=True)
    quick, other = (
        {line.removeprefix(f"{kind} tests/") for line in ran.stdout.splitlines() if line.startswith(f"{kind} tests/")}
        for kind in ("quick", "other")
    )
    assert quick
    assert other
    return quick, other


@pytest.mark.takes_seconds
def test_the_selection_is_what_the_marks_say():
    named = {mark: {f"{file}::{function}[{case}]" for (file, function, kind), cases in marked().items()
                    if kind == mark for case in cases} for mark in (FIRST, LATER)}  # fmt: skip
    files = {SOAKING.partition("::")[0], *(case.partition("::")[0] for cases in named.values() for case in cases)}
    found, other = collected(files)
    every = found | other
    assert named[FIRST] | named[LATER] <= every, "each case that a mark names is there"
    assert named[FIRST] <= found
    assert not named[LATER] & found
    assert not [case for case in found if SOAKING in case]
    for case in named[LATER]:
        others = {one for one in every if one.partition("[")[0] == case.partition("[")[0]} - named[LATER]
        assert others & found or not others, "of the cases beside it some stay quick"
    tables = [case.partition("[")[0] for case in found - named[FIRST]]
    assert max(map(tables.count, {*tables})) == 3, "of each table three cases"


def mark(name, *cases):
    return getattr(pytest.mark, name)(*cases).mark


@pytest.mark.parametrize(
    ("node", "marks", "quick"),
    [
        ("cli/test_w.py::test_y", [], True),
        ("cli/test_w.py::test_y", [mark(LATER)], False),
        ("cli/test_w.py::test_y[1]", [mark(LATER, "1", "2")], False),
        ("cli/test_w.py::test_y[12]", [mark(LATER, "1", "2")], True),
        ("live/test_w.py::test_y", [], False),
        ("live/test_w.py::test_y[1-2]", [mark(FIRST)], True),
        ("live/test_w.py::test_y[1-2]", [mark(FIRST, "1-2")], True),
        ("live/test_w.py::test_y[1]", [mark(FIRST, "1-2")], False),
        ("live/test_w.py::test_y", [mark(FIRST), mark(LATER)], False),
        ("live/test_w.py::test_y", [mark("processes")], False),
    ],
)
def test_what_takes_seconds_is_not_quick_whatever_else_it_is(node, marks, quick):
    assert is_quick(f"tests/{node}", marks) is quick


def test_of_a_table_the_first_the_middle_and_the_last_case_are_chosen():
    table = [f"tests/cli/test_w.py::test_y[{case}]" for case in "abcdefg"]
    assert covering([*table, "tests/cli/test_w.py::test_z"]) == {
        table[0], table[3], table[6], "tests/cli/test_w.py::test_z",
    }  # fmt: skip
    assert covering(table[:2]) == {*table[:2]}
    assert covering([]) == set()


def test_a_case_that_breaks_first_is_chosen_by_its_name():
    assert is_named("tests/live/test_w.py::test_y[b]", [mark(FIRST, "b")])
    assert not is_named("tests/live/test_w.py::test_y[a]", [mark(FIRST, "b"), mark(LATER, "a")])
    assert not is_named("tests/live/test_w.py::test_y[a]", [mark(FIRST)])
