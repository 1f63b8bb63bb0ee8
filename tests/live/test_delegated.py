"""Losses that show at the end alone: in frames that were delegated to, in files that are written at once; logs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.results import Resumption


class Trainer:
    """Counts steps without a better value, and keeps a row of each step."""

    def __init__(self, folder: Path, lost: str) -> None:
        self.file, self.lost, self.w, self.step = folder / "state.npz", lost, np.full(3, 5.0), 0
        self.bad, self.rows = 0, np.zeros(0)

    def fit(self) -> Iterator[int]:
        if self.file.exists():
            with np.load(self.file) as saved:
                self.w, self.step = saved["w"], int(saved["step"])
                self.bad = 0 if self.lost == "bad" else int(saved["bad"])
                self.rows = self.rows if self.lost == "rows" else saved["rows"]
        while self.step < 14:
            yield self.step
            self.w, self.step = self.w * 0.9, self.step + 1
            self.bad = 0 if float(self.w[0]) > 5.0 else self.bad + 1
            if self.bad > 30:
                break
            self.rows = np.append(self.rows, self.w[0])
            if self.step % 4 == 0:
                np.savez(self.file, w=self.w, step=self.step, bad=self.bad, rows=self.rows)


def delegates(folder: Path, lost: str = "", file: str = "") -> Iterator[int]:
    """Leave all to an object that nobody holds afterwards; write the rows at the end if there is a file for them."""
    trainer = Trainer(folder, lost)
    yield from trainer.fit()
    if file:
        np.savetxt(folder / file, trainer.rows)


def delegates_all(folder: Path, lost: str = "") -> Iterator[int]:
    yield from Trainer(folder, lost).fit()


def passes_on(folder: Path, lost: str = "") -> Iterator[int]:
    """As `yield from`, written as a loop."""
    for step in Trainer(folder, lost).fit():  # noqa: UP028 - the other spelling is what is tried
        yield step


def numbers(first: int) -> Iterator[int]:
    """A feed of steps."""
    yield from range(first, 14)


def trains_on_numbers(folder: Path, lost: str = "") -> Iterator[int]:
    """Pass on the numbers of a feed, and train."""
    w, start, bad, file = np.full(3, 5.0), 0, 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, start, bad = saved["w"], int(saved["step"]), 0 if lost else int(saved["bad"])
    for step in numbers(start):
        yield step
        w, bad = w * 0.9, 0 if w[0] > 5.0 else bad + 1
        if bad > 30:
            break
        if step % 4 == 3:
            np.savez(file, w=w, step=step + 1, bad=bad)


def verdict(train: Any, **options: Any) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=10, mode="inline", scenarios="kill", options=options)


@pytest.mark.parametrize("train", [delegates_all, passes_on, trains_on_numbers])
@pytest.mark.parametrize(("lost", "expected"), [("", "holds"), ("bad", "broken")])
def test_what_only_the_inner_frame_holds_is_judged_to_its_end(train: Any, lost: str, expected: str) -> None:
    found = verdict(train, lost=lost)
    assert found.verdict == expected, found.text()
    assert not lost or found.suspects[0].path in ("bad", "self.bad")


@pytest.mark.parametrize("file", ["losses.txt", "curve.dat", "rows"])
@pytest.mark.parametrize(("lost", "expected"), [("", "holds"), ("rows", "broken")])
def test_rows_that_a_file_lacks_are_red_whatever_it_is_called(file: str, lost: str, expected: str) -> None:
    assert verdict(delegates, lost=lost, file=file).verdict == expected


def logs(folder: Path, mode: str = "a", lost: str = "") -> Iterator[int]:
    """Write a line of each step into a log, bare numbers."""
    w, start, file = np.full(3, 5.0), 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, start = saved["w"] * (0.5 if lost else 1.0), int(saved["step"])
    with (folder / "log.txt").open(mode) as log:
        for step in range(start, 14):
            yield step
            w = w * 0.9
            log.write(f"{step} {w[0]}\n")
            log.flush()
            if step % 4 == 3:
                np.savez(file, w=w, step=step + 1)


@pytest.mark.parametrize("mode", ["a", "w"])
def test_a_log_with_lines_twice_or_begun_anew_is_no_loss(mode: str) -> None:
    assert verdict(logs, mode=mode).verdict == "holds"
    assert verdict(logs, mode=mode, lost="w").verdict == "broken"
