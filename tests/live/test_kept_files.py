"""Checkpoints are judged by the rules that a trainer says it keeps them by."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.errors import SpecError
from parity.policy import Rules
from parity.results import Resumption

METRICS = (5.0, 3.0, 4.0, 2.0, 6.0, 2.5)


def train(folder: Path, fault: str = "", steps: int = 25) -> Iterator[int]:
    """Keep the two newest checkpoints and the best in directories with a number, and a copy of the best."""
    weights, start, best, value = np.zeros(2), 0, np.inf, np.inf
    saved = sorted(int(path.name) for path in folder.glob("[0-9]*"))
    if saved:
        with np.load(folder / str(saved[-1]) / "state.npz") as loaded:
            weights, best, start = loaded["weights"], float(loaded["best"]), saved[-1]
    for step in range(start, steps):
        yield step
        weights = weights + 0.5
        if (step + 1) % 4 == 0:
            value = METRICS[step // 4 % len(METRICS)]
            is_best = value < best
            best = min(best, value)
            (folder / str(step + 1)).mkdir(exist_ok=True)
            np.savez(folder / str(step + 1) / "state.npz", weights=weights, best=best, value=value)
            if (
                (is_best and fault != "best_missed")
                or fault == "best_by_latest"
                or not (folder / "best.npz").exists()
            ):
                np.savez(folder / "best.npz", weights=weights, value=value)
            remove(folder, fault)


def remove(folder: Path, fault: str) -> None:
    """Remove what the rules keep no longer."""
    saved = sorted(int(path.name) for path in folder.glob("[0-9]*"))
    metrics = {step: float(np.load(folder / str(step) / "state.npz")["value"]) for step in saved}
    best = (max if fault == "wrong_best" else min)(saved, key=lambda step: metrics[step])
    keep = {*saved[-2:], best}
    if fault == "newest_deleted" and len(saved) > 2:
        keep = {*saved[:2], best}
    if fault == "best_deleted":
        keep = {*saved[-2:]}
    for step in saved:
        if step not in keep:
            shutil.rmtree(folder / str(step))


def check(fault: str = "", metric: str = "value", keep_latest: int = 2) -> Resumption:
    rules = Rules(mode="min", keep_latest=keep_latest, keep_best=1)
    return parity.resumes(
        train,
        steps=25,
        stop_at=18,
        mode="inline",
        scenarios="kill",
        options={"fault": fault},
        keep=rules,
        metric=metric,
    )


def test_a_trainer_that_keeps_what_it_says_holds() -> None:
    found = check()
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(
    ("fault", "component", "path"),
    [
        ("newest_deleted", "checkpoint.retention", "12"),
        ("best_deleted", "best", "16"),
        ("wrong_best", "best", "16"),
        ("best_by_latest", "best", "best.npz"),
        ("best_missed", "best", "best.npz"),
    ],
)
def test_what_is_kept_otherwise_is_named(fault: str, component: str, path: str) -> None:
    found = check(fault)
    assert found.verdict == "broken", found.text()
    assert (found.suspects[0].component, found.suspects[0].path) == (component, path)
    assert found.suspects[0].when == "by the rules of keep"


def test_fewer_than_it_says_is_named() -> None:
    assert check(keep_latest=3).components == ("checkpoint.retention",)


def test_a_metric_that_no_variable_holds_is_refused() -> None:
    with pytest.raises(SpecError, match="none is called 'accuracy'"):
        check(metric="accuracy")
