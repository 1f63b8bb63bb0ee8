"""The phases of a joint save are functions that a save calls, wherever they have moved to."""

import importlib
from operator import attrgetter

import pytest

from benchmarks.save_phases import COMMON, OWN


@pytest.mark.parametrize("side", OWN)
def test_every_phase_is_a_function_that_is_there(side):
    for place in {**COMMON, **OWN[side]}.values():
        module, _, path = place.partition(":")
        assert callable(attrgetter(path)(importlib.import_module(module)))
