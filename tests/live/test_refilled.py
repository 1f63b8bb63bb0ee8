"""A queue that is filled again by the first step after a resume is no loss; what only looks like one is."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity

STEPS, STOP = 16, 11


class Feed:
    """Draws rows of a packed stream, some batches ahead; a cut of the stream waits in a buffer."""

    def __init__(self, ahead: int) -> None:
        self.ahead, self.waiting = ahead, deque[tuple[Any, dict[str, Any]]]()
        self.kept: list[int] = []
        self.drawn = 0
        self.behind: dict[str, Any] = {"kept": [], "drawn": 0}

    def take(self) -> Any:
        while len(self.waiting) <= self.ahead:
            while len(self.kept) <= 5:
                self.kept += range(self.drawn * 7 % 11, self.drawn * 7 % 11 + 4)
                self.drawn += 1
            row, self.kept = self.kept[:5], self.kept[5:]
            self.waiting.append((np.array(row, float), {"kept": list(self.kept), "drawn": self.drawn}))
        row, self.behind = self.waiting.popleft()
        return row


def feeds(folder: Path, ahead: int = 2, lost: bool = False) -> Iterator[int]:
    feed, w, start, file = Feed(ahead), np.zeros(5), 0, folder / "state.json"
    if file.exists():
        held = json.loads(file.read_text())
        w, start = np.array(held["w"]), held["step"]
        feed.drawn = held["feed"]["drawn"]
        feed.kept = [] if lost else held["feed"]["kept"]
        feed.behind = held["feed"]
    for step in range(start, STEPS):
        yield step
        row = feed.take()
        w = w * 0.9 + row
        if step % 4 == 3:
            file.write_text(json.dumps({"w": w.tolist(), "step": step + 1, "feed": feed.behind}))


class Best:
    """Keeps the best three steps and how many came without a better one."""

    def __init__(self) -> None:
        self.top: list[tuple[float, int]] = []
        self.without = 0


def ranks(folder: Path) -> Iterator[int]:
    best, w, start, file = Best(), np.zeros(3), 0, folder / "state.json"
    if file.exists():
        w, start = np.array(json.loads(file.read_text())["w"]), json.loads(file.read_text())["step"]
    for step in range(start, STEPS):
        yield step
        w = w * 0.9 + step
        value = float(np.sin(step))
        best.without = 0 if all(value > one for one, _ in best.top) else best.without + 1
        best.top = sorted([*best.top, (value, step)])[-3:]
        if best.without > 12:
            return
        if step % 4 == 3:
            file.write_text(json.dumps({"w": w.tolist(), "step": step + 1}))


def check(train: Any, **options: Any) -> Any:
    return parity.resumes(train, steps=STEPS, stop_at=STOP, mode="inline", scenarios="quick", options=options)


@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_batches_that_are_made_ahead_again_are_no_loss(ahead: int) -> None:
    found = check(feeds, ahead=ahead)
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_cut_that_was_lost_is(ahead: int) -> None:
    found = check(feeds, ahead=ahead, lost=True)
    assert found.verdict == "broken", found.text()


def test_records_that_begin_anew_are_lost() -> None:
    found = check(ranks)
    assert found.verdict == "broken", found.text()
    assert "best" in found.suspects[0].path, found.text()
