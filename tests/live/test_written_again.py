"""A lost note of what has been written: the step that makes it anew writes the files again, as others."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption

Trainer = Callable[[Path, int], Iterator[int]]


def judged(train: Trainer) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios="kill")


def exports(
    made: Callable[[], Any], note: Callable[[Any, int], None], *, lost: str = "", fixed: bool = False
) -> Trainer:
    """Return a trainer that exports its weights when it has come so far, once."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, mean, n, done, file = np.ones(3), np.zeros(3), 0, made(), folder / "state"
        if file.exists():
            w, kept, n, done_then = pickle.loads(file.read_bytes())
            done = done if lost == "done" else done_then
            mean = mean if lost == "mean" else kept
        while n < steps:
            yield n
            w = w - 0.1 * (w - np.random.default_rng(n).normal(size=3))
            n += 1
            for at in (3, 6, 12):
                if n >= at and at not in done:
                    note(done, at)
                    np.save(folder / f"export_{at}.npy", np.ones(at) if fixed else w)
            mean = 0.9 * mean + 0.1 * w
            if n == 14:
                np.save(folder / "mean.npy", mean)
            file.write_bytes(pickle.dumps((w, mean, n, done)))

    return train


NOTES: dict[str, tuple[Callable[[], Any], Callable[[Any, int], Any]]] = {
    "set": (set, lambda done, at: done.add(at)),
    "list": (list, lambda done, at: done.append(at)),
    "dict": (dict, lambda done, at: done.update({at: True})),
}


@pytest.mark.parametrize("kind", NOTES)
def test_the_note_is_named_before_the_files(kind: str) -> None:
    assert judged(exports(*NOTES[kind])).verdict == "holds"
    found = judged(exports(*NOTES[kind], lost="done"))
    assert found.verdict == "broken"
    assert found.suspects[0].path.startswith("done"), found.text()
    assert any(one.path.startswith("export_3.npy") for one in found.suspects)


@pytest.mark.parametrize("kind", NOTES)
def test_files_that_are_written_again_as_they_were_are_no_loss(kind: str) -> None:
    assert judged(exports(*NOTES[kind], lost="done", fixed=True)).verdict == "holds"


def test_a_file_that_no_note_was_for_is_not_laid_to_one() -> None:
    found = judged(exports(*NOTES["set"], lost="mean"))
    assert found.verdict == "broken"
    assert found.suspects[0].path == "mean", found.text()


def renamed(folder: Path, steps: int) -> Iterator[int]:
    """The same by other words, in an object, and with a key for each file."""
    x, k, o, file = np.ones(3), 0, {"q": set[str]()}, folder / "state"
    if file.exists():
        x, k = pickle.loads(file.read_bytes())
    while k < steps:
        yield k
        x = x - 0.1 * (x - np.random.default_rng(k).normal(size=3))
        k += 1
        u = "abc"[k // 5]
        if k > 2 and u not in o["q"]:
            o["q"].add(u)
            np.save(folder / f"{u}.npy", x)
        file.write_bytes(pickle.dumps((x, k)))


def test_the_note_is_named_whatever_it_is_called() -> None:
    found = judged(renamed)
    assert found.verdict == "broken"
    assert found.suspects[0].path == "o.q", found.text()
