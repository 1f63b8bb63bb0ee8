"""What a process draws for itself and saves is no loss: the run that saved had drawn its own."""

import pickle
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from tests.live import imports_of_users

pytestmark = pytest.mark.processes

NAME = uuid.uuid4().hex
DRAWS = np.random.default_rng()
"""Seeded by nobody."""


def train(folder: Path, steps: int, lost: str = "") -> Iterator[int]:
    """Step through noise that is seeded; generators that nobody seeds are saved with it, and restored."""
    file, weights, past, noise = folder / "state.pickle", np.ones(3), np.zeros(3), np.random.default_rng(3)
    begin, name, words = 0, NAME, {f"word{n}" for n in range(40)}
    if file.exists():
        held = pickle.loads(file.read_bytes())
        begin, weights, name = held["step"], held["weights"], held["name"]
        past = past if lost == "past" else held["past"]
        noise.bit_generator.state = held["noise"]
        random.setstate(held["python"])
        np.random.set_state(held["numpy"])  # noqa: NPY002 - the generator that all code shares
        DRAWS.bit_generator.state = held["draws"]
        words = words if lost == "words" else set(held["words"])
    for step in range(begin, steps):
        yield step
        past = 0.9 * past + weights + 0.1 * noise.normal(size=3)
        weights = weights - 0.05 * past
        if step % 3 == 2:
            held = {"step": step + 1, "weights": weights, "past": past, "name": name, "words": sorted(words)}
            held |= {"draws": DRAWS.bit_generator.state, "noise": noise.bit_generator.state}
            held |= {"python": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002
            file.write_bytes(pickle.dumps(held))
    yield steps


def in_order_of_a_set(folder: Path, steps: int) -> Iterator[int]:
    """Leave names in the order of a set, which the process that saved had in another one."""
    file = folder / "state.pickle"
    names = list({f"word{n}" for n in range(40)})
    begin, weights = 0, np.ones(3)
    if file.exists():
        begin, weights, names = pickle.loads(file.read_bytes())
    for step in range(begin, steps):
        yield step
        weights = weights * 0.9
        if step % 3 == 2:
            file.write_bytes(pickle.dumps((step + 1, weights, names)))
    yield steps


@pytest.mark.parametrize("scenarios", ["kill", pytest.param("all", marks=pytest.mark.soak)])
def test_generators_that_nobody_seeds_are_saved_by_the_run_that_drew_them(scenarios: str) -> None:
    found = parity.resumes(train, steps=12, stop_at=7, mode="process", scenarios=scenarios)
    assert found.verdict == "holds", found.text()


def test_what_is_lost_beside_them_is_found() -> None:
    found = parity.resumes(train, steps=12, stop_at=7, mode="process", scenarios="kill", options={"lost": "past"})
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "past", found.text()


def test_names_are_kept_in_the_order_that_the_saver_gave_them() -> None:
    """No other run has them so: the one whose set has that order is the truth."""
    found = parity.resumes(in_order_of_a_set, steps=12, stop_at=7, mode="process", scenarios="kill")
    assert found.verdict == "holds", found.text()


def test_values_that_went_to_other_names_are_found_though_their_file_is_that_of_the_saver() -> None:
    found = parity.resumes(imports_of_users.in_order_of_a_set, steps=12, stop_at=6, mode="process", scenarios="kill")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("weights["), found.text()
