"""Trainers without libraries: weights in variables, lists and dicts of Python's own floats."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import parity


def saved(folder: Path) -> Any:
    file = folder / "state.json"
    return json.loads(file.read_text()) if file.exists() else None


def linear(folder: Path, lost: bool = False) -> Iterator[int]:
    rng = random.Random(0)
    data = [([rng.uniform(-1, 1) for _ in range(3)], rng.uniform(-1, 1)) for _ in range(20)]
    w, v, step = [0.0] * 3, [0.0] * 3, 0
    if (found := saved(folder)) is not None:
        w, step, v = found["w"], found["step"], v if lost else found["v"]
    while step < 16:
        yield step
        x, y = data[step]
        error = sum(a * b for a, b in zip(w, x, strict=True)) - y
        v = [0.9 * m + error * a for m, a in zip(v, x, strict=True)]
        w = [a - 0.1 * m for a, m in zip(w, v, strict=True)]
        step += 1
        if step % 4 == 0:
            (folder / "state.json").write_text(json.dumps({"w": w, "v": v, "step": step}))


def table(folder: Path, lost: bool = False) -> Iterator[int]:
    q: dict[str, float] = {}
    step = 0
    if (found := saved(folder)) is not None:
        q, step = {} if lost else found["q"], found["step"]
    while step < 16:
        yield step
        key = f"{step % 3}{step % 2}"
        q[key] = q.get(key, 0.0) + 0.1 * (1.0 - q.get(key, 0.0))
        step += 1
        if step % 4 == 0:
            (folder / "state.json").write_text(json.dumps({"q": q, "step": step}))


@pytest.mark.parametrize("train", [linear, table])
def test_they_are_judged_as_others_are(train: Any) -> None:
    def verdict(**options: Any) -> str:
        return parity.resumes(train, steps=16, stop_at=10, mode="inline", scenarios="kill", options=options).verdict

    assert (verdict(), verdict(lost=True)) == ("holds", "broken")


def hidden(folder: Path) -> Iterator[int]:
    """Train what no check can see, and look at its loss."""
    (folder / "state.json").write_text("[]")
    for step in range(16):
        yield step
        loss = 1.0 / (step + 1)
        print(loss)


def test_a_loss_that_a_step_makes_for_itself_is_nothing_that_was_trained() -> None:
    assert parity.resumes(hidden, steps=16, stop_at=10, mode="inline", scenarios="kill").verdict == "inconclusive"


def masks(folder: Path, lost: bool = False) -> Iterator[int]:
    """Train a number by the bits of a mask, which has more digits than a leaf shows."""
    weight, step, mask = 1.0, 0, (1 << 512) - 1
    if (found := saved(folder)) is not None:
        weight, step, mask = found["weight"], found["step"], (1 << (500 if lost else 512)) - 1
    while step < 16:
        yield step
        weight = 0.9 * weight + 0.001 * (mask >> step).bit_count()
        step += 1
        if step % 4 == 0:
            (folder / "state.json").write_text(json.dumps({"weight": weight, "step": step}))


@pytest.mark.parametrize(("lost", "first"), [(False, []), (True, ["mask"])])
def test_a_number_of_many_digits_is_one_like_others(lost: bool, first: list[str]) -> None:
    options = {"lost": lost}
    found = parity.resumes(masks, steps=16, stop_at=10, mode="inline", scenarios="kill", options=options)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    assert [one.path for one in found.suspects[:1]] == first, found.text()


def averaged(folder: Path, kept: int = 5, last: int = 5, newest: bool = True) -> Iterator[int]:
    """Set a number to the mean of its last values at times; the last few of all its values are saved."""
    weight, step, course = 0.0, 0, [0.0]
    if (found := saved(folder)) is not None:
        weight, step, course = found["weight"], found["step"], found["course"][: None if newest else -1]
    while step < 16:
        yield step
        weight = 0.7 * weight + step
        course.append(weight)
        if step % 5 == 4:
            weight = sum(course[-last:]) / last
        step += 1
        (folder / "state.json").write_text(json.dumps({"weight": weight, "step": step, "course": course[-kept:]}))


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({}, "holds"),
        ({"kept": 2}, "broken"),
        ({"last": 2}, "holds"),
        ({"last": 2, "newest": False}, "broken"),  # the list alone is another one
    ],
)
def test_of_a_record_its_end_may_be_all_that_steps_read(options: dict[str, Any], verdict: str) -> None:
    found = parity.resumes(averaged, steps=16, stop_at=8, mode="inline", scenarios="kill", options=options)
    assert found.verdict == verdict, found.text()
