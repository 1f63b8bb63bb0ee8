"""What every resume makes otherwise is named behind what was lost: where it began, caches, feeds that skip."""

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.evidence import TwoStates
from parity.checks.judging.suspicion import is_refilled
from tests.live.small_loops import Trainer, check, first


def cools(*, lost: bool, tells: bool = False) -> Trainer:
    """Return a trainer of plain numbers; `tells` has it write down where its process began."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        path, first_one, warmth, at = folder / "state.bin", 0, 0.5, 3.0
        draws = random.Random(1)
        if path.exists():
            kept = pickle.loads(path.read_bytes()[1:])
            first_one, at = kept["done"], kept["at"]
            draws.setstate(kept["draws"])
            warmth = warmth if lost else kept["warmth"]
        for number in range(first_one, steps):
            yield number
            at = at + warmth * draws.gauss(0, 1) - 0.1 * at
            warmth = 0.5 if number == 16 else warmth * 0.9
            if number % 4 == 3:
                kept = {"done": number + 1, "at": at, "draws": draws.getstate(), "warmth": warmth}
                path.write_bytes(b"\0" + pickle.dumps(kept))  # nothing tells what is in it
        if tells:
            (folder / "told.bin").write_bytes(b"\0\xff" + bytes([first_one]))

    return train


def given(kind: Any, *, lost: bool) -> Trainer:
    """Return a trainer with a feed that a resume has to skip in, and a sum that it brings back as another type."""

    def feed() -> Iterator[float]:
        source = np.random.default_rng(3)
        while True:
            yield float(source.normal())

    def train(folder: Path, steps: int) -> Iterator[int]:
        path, begun, total, w, rows = folder / "state.json", 0, np.float64(0), np.ones(2), feed()
        if path.exists():
            kept = json.loads(path.read_text())
            begun, total, w = kept["done"], kind(kept["total"]), np.array(kept["w"])
            for _ in range(0 if lost else begun):
                next(rows)
        for number in range(begun, steps):
            yield number
            given = next(rows)
            w = w - 0.1 * (w - given)
            total = total + np.abs(w).sum()
            if number % 4 == 3:
                path.write_text(json.dumps({"done": number + 1, "total": float(total), "w": w.tolist()}))
        (folder / "total.txt").write_text(f"total {total:.9f}\n")

    return train


def skips(places: int = 40, *, lost: str = "") -> Trainer:
    """Return a trainer whose feed is told how much to skip, with a table that each step fills for what it takes."""

    def feed(skip: int = 0) -> Iterator[tuple[int, float]]:
        number = 0
        while True:
            draws = random.Random(number)
            number += 1
            if number > skip:
                yield draws.randrange(places), draws.gauss(0, 1)

    def train(folder: Path, steps: int) -> Iterator[int]:
        path, begun, seen, slopes, w = folder / "state.bin", 0, 0.0, np.zeros(places), {}
        if path.exists():
            kept = pickle.loads(path.read_bytes()[1:])
            begun = kept["done"]
            slopes = slopes if lost == "slopes" else kept["slopes"]
            seen = seen if lost == "seen" else kept["seen"]
        rows = feed(begun)
        for number in range(begun, steps):
            yield number
            place, value = next(rows)
            w[place] = float(slopes[place]) * 0.5
            seen += abs(w[place] - value)
            slopes[place] += 0.1 * (value - w[place])
            if number % 4 == 3:
                path.write_bytes(b"\0" + pickle.dumps({"done": number + 1, "slopes": slopes, "seen": seen}))
        (folder / "seen.txt").write_text(f"seen {seen:.9f}\n")

    return train


def test_the_step_at_which_a_process_began_is_named_behind_what_was_lost() -> None:
    assert check(cools(lost=False)).verdict == "holds"
    assert first(check(cools(lost=True))) == "warmth"


def test_a_file_of_unknown_form_is_named_itself_where_nothing_but_a_beginning_differs() -> None:
    assert first(check(cools(lost=False, tells=True))) == "told.bin:"


@pytest.mark.parametrize("kind", [float, np.float64])
def test_a_number_of_another_type_is_named_behind_the_feed_that_was_lost(kind: Any) -> None:
    assert check(given(kind, lost=False)).verdict == "holds"
    assert first(check(given(kind, lost=True))).startswith("rows")


def test_a_table_that_is_filled_again_is_named_behind_what_a_file_shows() -> None:
    assert check(skips()).verdict == "holds"
    assert first(check(skips(lost="seen"))) == "seen"


def test_what_a_feed_is_told_to_skip_is_named_behind_what_was_lost() -> None:
    assert first(check(skips(4, lost="slopes"))) == "slopes"


@pytest.mark.parametrize(("key", "again"), [("b", True), ("c", False)])
def test_a_table_that_gets_other_keys_after_a_resume_is_no_cache(key: str, again: bool) -> None:
    def holds(*keys: str) -> StateSnapshot:
        return StateSnapshot({f"kept[{one!r}]": Leaf("scalar", "kept", "int", "1") for one in keys})

    states = [TwoStates(4, holds("a"), holds()), TwoStates(5, holds("a", "b"), holds("a", key))]
    assert is_refilled("kept['a']", states) is again
