"""`make test-quick` runs something of every part of the tests, and its table names tests that are there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import quick
from tests.docs.pages import ROOT
from tests.faults.catalog import FAULTS
from tests.quick import ABSENT, PLANTED, QUICK, SLOW, is_quick

TESTS = ROOT / "tests"
SOAKING = "convert/test_convert.py::test_a_conversion_killed_at_a_hundred_moments_leaves_nothing_that_looks_whole"
"""A soak test in a folder that is quick."""


def untrue(entries: set[str], absent: set[str]) -> list[str]:
    """Return the folders that the table says nothing of, or two things, and the entries whose test is not there."""
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    spoken = {entry.partition("/")[0] for entry in entries & QUICK}
    found = [f"{folder}: neither quick nor absent" for folder in sorted(folders - spoken - absent)]
    found += [f"{folder}: quick and absent" for folder in sorted(spoken & absent)]
    for entry in sorted({*entries, *absent}):
        path, _, name = entry.partition("::")
        function = name.partition("[")[0]
        if not (TESTS / path).exists():
            found.append(f"{entry}: no such file")
        elif function and f"\ndef {function}(" not in (TESTS / path).read_text(encoding="utf-8"):
            found.append(f"{entry}: no such test")
    return found


def test_every_folder_of_tests_has_quick_ones_or_a_reason_and_every_entry_is_a_test():
    assert untrue({*QUICK, *SLOW}, {*ABSENT}) == []


@pytest.mark.parametrize(
    ("entries", "absent", "complaint"),
    [
        ({*QUICK} - {"parity"}, {*ABSENT}, "parity: neither quick nor absent"),
        ({*QUICK}, {*ABSENT, "parity"}, "parity: quick and absent"),
        ({*QUICK}, {*ABSENT} - {"soak"}, "soak: neither quick nor absent"),
        ({*QUICK, "parity/test_moved.py"}, {*ABSENT}, "parity/test_moved.py: no such file"),
        ({*QUICK, "parity/test_data.py::test_gone[x]"}, {*ABSENT}, "parity/test_data.py::test_gone[x]: no such test"),
    ],
)
def test_a_table_that_is_wrong_is_noticed(entries, absent, complaint):
    assert untrue(entries, absent) == [complaint]


def test_one_planted_fault_of_each_group_is_quick():
    named = {entry.removeprefix(PLANTED).strip("[]") for entry in QUICK if entry.startswith(PLANTED)}
    groups = [fault.group for fault in FAULTS for side in fault.sides if f"{fault.id}-{side}" in named]
    assert sorted(groups) == sorted({fault.group for fault in FAULTS})


def collected(*files: str) -> set[str]:
    """Return the cases that `-m quick` selects of files, without the folder that all are in."""
    options = [
        "-o",
        "addopts=--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        "-m",
        "quick",
    ]
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{file}" for file in files)]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=True)
    return {line.removeprefix("tests/") for line in ran.stdout.splitlines() if "::" in line}


def test_the_mark_selects_what_the_table_says():
    cases = {entry for entry in QUICK | SLOW if entry.endswith("]")}
    files = {SOAKING.partition("::")[0], *(entry.partition("::")[0] for entry in cases)}
    found = collected(*files)
    assert cases & QUICK <= found
    assert not [case for case in found if SOAKING in case]
    assert not cases & SLOW & found
    # The case beside a slow one is quick; so a slow case is one that is there.
    beside = {re.sub(r"([\[-])jax\]$", r"\1torch]", entry) for entry in cases & SLOW}
    assert beside <= found


def test_what_is_slow_is_not_quick_whatever_else_it_is(monkeypatch):
    monkeypatch.setattr(quick, "QUICK", frozenset({"a", "b/test_x.py::test_y", "c/test_z.py::test_z[1]"}))
    monkeypatch.setattr(quick, "SLOW", frozenset({"a/test_x.py", "a/test_y.py::test_y", "a/test_y.py::test_z[1]"}))
    nodes = {
        "a/test_w.py::test_y": True,
        "a/test_x.py::test_y": False,
        "a/test_y.py::test_y[1]": False,
        "a/test_y.py::test_z[1]": False,
        "a/test_y.py::TestZ::test_z[2]": True,
        "b/test_x.py::test_y[1-2]": True,
        "b/test_x.py::test_y_too": False,
        "c/test_z.py::test_z[1]": True,
        "c/test_z.py::test_z[2]": False,
    }
    assert {node: is_quick(f"tests/{node}") for node in nodes} == nodes
    assert Path(quick.__file__).parent == TESTS
