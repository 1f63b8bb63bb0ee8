"""The examples in the docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import parity

MODULES = [m.name for m in pkgutil.walk_packages(parity.__path__, "parity.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    tests = [test for name in MODULES for test in finder.find(importlib.import_module(name))]
    assert sum(len(test.examples) for test in tests) >= 8
