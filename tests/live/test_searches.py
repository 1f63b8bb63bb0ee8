"""A search over permutations moves whole numbers, and the best length that it has found rests."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parity
from parity.results import Resumption


def check(train: Callable[[Path, int], Iterator[int]]) -> Resumption:
    return parity.resumes(train, steps=12, stop_at=7, mode="inline", scenarios=("kill", "third"))


def search(lost: str = "") -> Callable[[Path, int], Iterator[int]]:
    """Return a trainer that swaps two places of a tour in each step; the best length comes in the first ones."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        file, draws, tour, best, start = folder / "tour.json", random.Random(1), list(range(8)), 99.5, 0
        if file.exists():
            saved = json.loads(file.read_text())
            best, start = saved["best"], saved["step"]
            tour = tour if lost == "tour" else saved["tour"]
            version, state, gauss = saved["draws"]
            draws.setstate((version, tuple(state), gauss))
        for step in range(start, steps):
            yield step
            i, j = draws.sample(range(8), 2)
            tour[i], tour[j] = tour[j], tour[i]
            if step < 2:
                best = best - 0.5
            if step % 2:
                file.write_text(json.dumps({"tour": tour, "best": best, "step": step + 1, "draws": draws.getstate()}))

    return train


def test_a_search_that_resumes_holds_and_says_what_was_taken_for_trained() -> None:
    found = check(search())
    assert found.verdict == "holds", found.text()
    assert any("whole numbers are taken for what is trained, as tour" in note for note in found.notes), found.text()


def test_a_tour_that_is_lost_is_named() -> None:
    found = check(search("tour"))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("tour"), found.text()


@pytest.mark.parametrize("holder", ["progress", "tour"])
def test_counts_beside_a_number_that_rests_are_not_taken_for_what_is_trained(holder: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        file, counts, best, start = folder / "n.json", {holder: 0, "seen": 0}, 9.5, 0
        if file.exists():
            counts, best, start = json.loads(file.read_text())
        for step in range(start, steps):
            yield step
            counts = {holder: counts[holder] + 1, "seen": counts["seen"] + 8}
            best = best - 0.5 if step < 2 else best
            file.write_text(json.dumps((counts, best, step + 1)))

    found = check(train)
    assert found.verdict == "inconclusive", found.text()
