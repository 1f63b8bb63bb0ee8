"""docs/your-trainer.md: the places in which a loop may keep something, and the path at which each is seen."""

import functools
import importlib
import itertools
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity import sides
from parity.capture import Walk, capture
from parity.capture.frames import Scope
from tests.docs.pages import expect_failure, table
from tests.docs.sources import codes

TRAINER = "docs/your-trainer.md"
HELPER = """
import builtins, functools, os
import numpy
average = numpy.zeros(3)

class Meter:
    average = numpy.zeros(3)

def update(value, average=numpy.zeros(3)):
    average += value

@functools.lru_cache
def load(name):
    return numpy.zeros(3)

def begin():
    load(3)
    numpy.average = numpy.zeros(3)
    builtins.average = numpy.zeros(3)
"""


class Items(dict[str, Any]):
    """Has attributes beside its items."""


def batches():
    variable = np.zeros(3)
    for one in [variable, variable]:  # noqa: UP028 - the variable of a loop is what is looked for
        yield one


def paths_of(**values: Any) -> set[str]:
    walk = Walk()
    for name, value in values.items():
        walk.root(name, value)
    return set(walk.finish().leaves)


def paths_of_values() -> set[str]:
    """Return where the content of some variables called `name` and `model` is seen."""
    items, model = Items(), torch.nn.Linear(2, 2)
    items.attribute = np.zeros(3)
    average = np.zeros(3)
    model.register_forward_hook(lambda module, inputs, outputs: average.__iadd__(1.0))
    running = batches()
    next(running)
    some = [items, running, itertools.repeat(average)]
    return set().union(*(paths_of(name=one) for one in some), paths_of(model=model))


@functools.cache
def look() -> frozenset[str]:
    """Return every path at which something is seen, with that which the rows of the table speak of in place."""
    sides.adapters()  # as a check does: without them the number of a hook is what PyTorch has counted to
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        (Path(folder) / "helper.py").write_text(HELPER)
        patch.syspath_prepend(folder)
        patch.setenv("NAME", "0.5")
        patch.setattr("numpy.average", np.average)
        patch.setattr("builtins.average", None, raising=False)
        helper = importlib.import_module("helper")
        helper.begin()
        frame = sys._getframe()
        found = set(capture([Scope("", frame.f_code, frame.f_lasti, {"helper": helper}, frame.f_globals)]).leaves)
        del sys.modules["helper"]
    return frozenset(found | paths_of_values())


def test_the_places_of_the_page_are_seen_where_it_says() -> None:
    shown = [path for cells in table(TRAINER, "place", "seen as").rows for path in codes(cells[1])]
    assert len(shown) > 10
    for path in shown:
        at = re.compile(re.escape(path) + r"(?![\w])")
        assert any(at.match(one) for one in look()), path


PLANTS: dict[Callable[[], None], list[tuple[str, str, str]]] = {
    test_the_places_of_the_page_are_seen_where_it_says: [
        (TRAINER, "`helper:update.average`", "`helper:update()`"),
        (TRAINER, "`name.for[0]`", "`name.for.of`"),
    ],
}


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(
    test: Callable[[], None], plant: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_failure(test, *plant, monkeypatch)
