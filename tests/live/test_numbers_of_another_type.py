"""The same number as another type of Python decides nothing; another number that a condition takes does."""

import heapq
from pathlib import Path

import numpy as np
import pytest

import parity


def pruning(folder: Path, steps: int = 12, *, restores: str = "float"):
    """Train three numbers; keep the places of the worst steps in a heap that goes through an array of floats."""
    weights, begun, worst, file = np.ones(3), 0, [], folder / "state.npz"
    if file.exists():
        with np.load(file) as loaded:
            weights, begun = loaded["weights"], int(loaded["step"])
            worst = [tuple(one) for one in loaded["worst"].tolist()]
        if restores == "int":
            worst = [(score, int(step)) for score, step in worst]
        elif restores == "other":
            worst = [(score, step + 0.5) for score, step in worst]
        elif restores == "text":
            worst = [(score, str(int(step))) for score, step in worst]
    for step in range(begun, steps):
        yield step
        weights = 0.9 * weights + 0.01 * step
        heapq.heappush(worst, (float(weights[0]), step))
        if len(worst) > 4:
            weights = weights * (1 + 0.001 * float(heapq.heappop(worst)[1]))
        if step % 4 == 3:
            np.savez(file, weights=weights, step=step + 1, worst=np.array(worst, dtype=float))


@pytest.mark.parametrize(
    ("restores", "verdict"), [("int", "holds"), ("float", "holds"), ("other", "broken"), ("text", "broken")]
)
def test_a_number_that_comes_back_as_another_type(restores, verdict):
    options = {"restores": restores}
    found = parity.resumes(pruning, steps=12, stop_at=9, mode="inline", scenarios="kill", options=options)
    assert found.verdict == verdict, found.text()
    if restores == "float":
        assert any(one.path.startswith("worst[") for one in found.bookkeeping), found.text()


def drifting(folder: Path, steps: int = 14, *, lost: str = ""):
    """Count since the last drift, in an array of floats beside others; a file alone shows the steps of drifts."""
    w, since, low, drifts, begun, file = np.ones(3), 0, 0.0, [], 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as loaded:
            w, begun, (since, low) = loaded["w"], int(loaded["step"]), loaded["numbers"].tolist()
            since = 2.0 if lost == "since" else since
            drifts = [] if lost == "drifts" else loaded["drifts"].tolist()
    for step in range(begun, steps):
        yield step
        x = np.sin(step + np.arange(3))
        since, low = since + 1, low + float(w @ x) / (since + 1)
        w = w - 0.1 * (w - x) / since
        if step in (3, 6):
            drifts.append(step)
        if step == 6:
            since, low = 0, 0.0
        if step % 4 == 2:
            np.savez(file, w=w, step=step + 1, numbers=[since, low], drifts=drifts)


@pytest.mark.parametrize(("lost", "named"), [("", ""), ("drifts", "drifts"), ("since", "since")])
def test_it_is_named_behind_what_a_file_shows(lost, named):
    found = parity.resumes(
        drifting, steps=14, stop_at=8, mode="inline", scenarios="kill", options={"lost": lost} if lost else None
    )
    if not lost:
        assert found.verdict == "holds", found.text()
    else:
        assert (found.verdict, found.suspects[0].path.partition(".")[0]) == ("broken", named), found.text()


def rated(folder: Path, steps: int = 12, *, as_number: bool = False):
    """Train in float32 by a rate that NumPy gives back as a float64, with which all comes to be float64 (NEP 50)."""
    weights, rate, begun, file = np.ones(3, np.float32), 0.2, 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as loaded:
            weights, rate, begun = loaded["weights"], loaded["rate"][()], int(loaded["step"])
        rate = float(rate) if as_number else rate
    for step in range(begun, steps):
        yield step
        weights = weights - rate * (weights - np.float32(step))
        rate = 0.9 * rate
        if step % 4 == 3:
            np.savez(file, weights=weights, step=step + 1, rate=rate)


def test_a_rate_of_another_type_is_told_by_the_type() -> None:
    found = parity.resumes(rated, steps=12, stop_at=9, mode="inline", scenarios="kill")
    first = found.suspects[0]
    assert (found.verdict, first.path) == ("broken", "rate"), found.text()
    assert first.expected.endswith(" (float)"), found.text()
    assert first.got.endswith(" (numpy.float64)"), found.text()
    assert "another type" in first.advice
    right = parity.resumes(rated, steps=12, stop_at=9, mode="inline", scenarios="kill", options={"as_number": True})
    assert right.verdict == "holds", right.text()


def patient(folder: Path, steps: int = 14, *, whole: bool = False):
    """Stop after so many steps in which the loss was not lower: a count that NumPy gives back as its own integer."""
    weights, bad, low, begun, file = np.ones(3), 0, 9e9, 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as loaded:
            weights, bad, low, begun = loaded["weights"], loaded["bad"][()], float(loaded["low"]), int(loaded["step"])
        bad = int(bad) if whole else bad
    for step in range(begun, steps):
        yield step
        weights = weights - 0.1 * (weights - np.sin(step + np.arange(3)))
        loss = float(weights @ weights)
        low, bad = (loss, 0) if loss < low else (low, bad + 1)
        if bad > 40:
            return
        if step % 4 == 3:
            np.savez(file, weights=weights, step=step + 1, bad=bad, low=low)


@pytest.mark.parametrize("whole", [True, False])
def test_a_count_of_another_type_decides_nothing(whole: bool) -> None:
    options = {"whole": whole}
    found = parity.resumes(patient, steps=14, stop_at=9, mode="inline", scenarios="kill", options=options)
    assert found.verdict == "holds", found.text()
