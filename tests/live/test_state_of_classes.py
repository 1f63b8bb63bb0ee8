"""State that lies in a class keeps its path where the document that was loaded still holds it."""

import pickle
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Scope, capture
from parity.results import Resumption


class Held:
    """Attributes of this class are the state of the run."""

    w: Any
    v: Any
    mu: float
    n: int
    file: Path


def steps_of(total: int) -> Iterator[int]:
    while Held.n < total:
        yield Held.n
        Held.v = 0.5 * Held.v + (Held.w - np.array([1.0, 2.0, 3.0]))
        Held.w = Held.w - Held.mu * Held.v
        Held.mu, Held.n = Held.mu * 0.97, Held.n + 1
        if Held.n % 3 == 0:
            kept = {name: getattr(Held, name) for name in ("w", "v", "mu", "n")}
            Held.file.write_bytes(pickle.dumps(kept))


def check(lost: str) -> Resumption:
    def train(folder: Path, steps: int) -> Iterator[int]:
        Held.w, Held.v, Held.mu, Held.n, Held.file = np.zeros(3), np.zeros(3), 0.2, 0, folder / "state.pkl"
        if Held.file.exists():
            document = pickle.loads(Held.file.read_bytes())
            for name in {"w", "v", "mu", "n"} - {lost}:
                setattr(Held, name, document[name])
        yield from steps_of(steps)

    return parity.resumes(train, steps=12, stop_at=8, mode="inline", scenarios=("kill", "third"))


def test_it_holds_where_all_is_loaded() -> None:
    found = check("")
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize("lost", ["mu", "v"])
def test_what_was_lost_is_named_and_no_tie_with_the_document(lost: str) -> None:
    found = check(lost)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.endswith(f"Held.{lost}"), found.text()
    assert all("document" not in one.got for one in found.suspects), found.text()


def test_a_variable_that_is_read_gives_the_path_and_one_that_is_not_does_not() -> None:
    def reads(document: dict[str, Any]) -> Generator[None, None, None]:
        yield
        print(document)

    def leaves(document: dict[str, Any]) -> Generator[None, None, None]:
        print(document)
        yield

    Held.w = np.arange(4.0)
    for function, first in ((reads, "document.w"), (leaves, f"{__name__}:Held.w")):
        running = function({"w": Held.w})
        next(running)
        seen = capture([Scope.of(running.gi_frame)])
        assert [path for path, leaf in seen.leaves.items() if leaf.kind.startswith("float64[4")] == [first]
