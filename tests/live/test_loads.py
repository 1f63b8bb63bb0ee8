"""What a trainer reads after a mark: an attribute that is written before it is read is no loss, a count is."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.running.loads import LoadWatch, is_unread
from parity.results import Resumption


class Stopper:
    """Counts evaluations that were no better; `latest` is set by each and read by who asks."""

    def __init__(self) -> None:
        self.best, self.bad, self.latest = 1e9, 0, None

    def update(self, value: float) -> bool:
        self.latest = value
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad > 5


def trains(folder: Path, lost: str = "") -> Iterator[int]:
    """Save the best value and the count, not the latest value: nobody reads it before it is set again."""
    stopper, w, start, file = Stopper(), np.full(3, 5.0), 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, start, stopper.best, stopper.bad = (
                saved["w"],
                int(saved["step"]),
                float(saved["best"]),
                int(saved["bad"]),
            )
        if lost:
            setattr(stopper, lost, {"bad": 0, "best": 1e9}[lost])
    history: list[float] = []
    for step in range(start, 16):
        yield step
        w = w * 0.9
        stop = stopper.update(float((w**2).sum()) + (40.0 if 6 <= step < 11 else 0.0))
        history = [*history, *tell(stopper)][-1:]
        if stop:
            break
        if step % 4 == 3:
            np.savez(file, w=w, step=step + 1, best=stopper.best, bad=stopper.bad)


def tell(stopper: Stopper) -> list[Any]:
    return [stopper.latest] if stopper.latest is not None and stopper.latest < 1e6 else []


def check(train: Callable[..., Any], mode: str = "inline", **options: Any) -> Resumption:
    return parity.resumes(train, steps=16, stop_at=10, mode=mode, scenarios="kill", options=options)


@pytest.mark.parametrize("mode", ["inline", "process"])
def test_what_is_set_before_it_is_read_is_listed(mode: str) -> None:
    found = check(trains, mode)
    assert found.verdict == "holds", found.text()
    assert "stopper.latest" in [one.path for one in found.bookkeeping]


@pytest.mark.parametrize("lost", ["bad", "best"])
def test_a_count_of_an_object_that_heals_was_lost_all_the_same(lost: str) -> None:
    found = check(trains, lost=lost)
    assert (found.verdict, found.suspects[0].path) == ("broken", f"stopper.{lost}"), found.text()


class Holder:
    value: Any = 0


def accesses(function: Callable[[Any, dict[str, Any]], Any]) -> set[Any]:
    """Return what a function takes or writes first of `value`."""
    found: set[Any] = set()
    watch = LoadWatch(["value"], lambda: 3, found, lambda file: True)
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: watch.enter(frame) if frame.f_code is function.__code__ else None)
    try:
        function(Holder(), {"value": 1})
    finally:
        sys.settrace(before)
    return found


def writes(holder: Any, items: dict[str, Any]) -> None:
    holder.value = 1
    items["other"] = holder.value


def takes(holder: Any, items: dict[str, Any]) -> None:
    items["other"] = holder.value


def adds(holder: Any, items: dict[str, Any]) -> None:
    holder.value += 1


def may_add(holder: Any, items: dict[str, Any]) -> None:
    holder.value = holder.value + 1 if not items else 0


def writes_a_key(holder: Any, items: dict[str, Any]) -> None:
    items["value"] = 1


def takes_a_key(holder: Any, items: dict[str, Any]) -> None:
    holder.other = items["value"]


def asks_by_name(holder: Any, items: dict[str, Any]) -> None:
    items["other"] = getattr(holder, "value", None)


@pytest.mark.parametrize(
    ("function", "unread"),
    [(writes, True), (takes, False), (adds, False), (may_add, False), (writes_a_key, True), (takes_a_key, False),
     (asks_by_name, False)],
)  # fmt: skip
def test_the_first_access_decides(function: Any, unread: bool) -> None:
    assert is_unread("value", accesses(function), 1, 3, written=True) == unread


def test_what_nobody_touches_is_unread_and_what_is_written_unseen_is_not() -> None:
    assert is_unread("value", set(), 1, 3, written=False)
    assert not is_unread("value", set(), 1, 3, written=True)
    assert not is_unread("value", {("value", 2, "load"), ("value", 3, "store")}, 1, 3, written=True)
    assert is_unread("value", {("value", 4, "load"), ("value", 3, "store")}, 1, 3, written=True)
