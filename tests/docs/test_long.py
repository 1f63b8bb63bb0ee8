"""The table of cases that wait for the soak names tests that are there, and never the whole of one."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT
from tests.long import LONG, is_long


def test_every_entry_is_a_test() -> None:
    for file, functions in LONG.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for function, cases in functions.items():
            assert f"\ndef {function}(" in text, f"{file}::{function}"
            assert cases


def test_none_that_was_collected_is_quick(request: pytest.FixtureRequest) -> None:
    assert getattr(request.config, "long_and_quick", None) == []


def test_a_case_is_told_by_its_whole_name() -> None:
    file, functions = next(iter(LONG.items()))
    function, cases = next(iter(functions.items()))
    assert is_long(f"tests/{file}::{function}[{cases[0]}]")
    assert not is_long(f"tests/{file}::{function}[{cases[0]}0]")
    assert not is_long(f"tests/{file}::{function}")


def test_of_each_test_in_the_table_a_case_is_in_the_gate(request: pytest.FixtureRequest) -> None:
    """Where the whole of the tests is collected, as `make test` does; of a part of them nothing can be said."""
    whole = getattr(request.config, "collected_cases", {})
    assert whole, "tests/conftest.py counts the cases"
    for file, functions in LONG.items():
        for function, cases in functions.items():
            seen = whole.get(f"tests/{file}::{function}")
            if seen is not None:
                assert {*cases} < seen, f"{file}::{function}: a case is not there, or no case is left"
