"""What NumPy does about an overflow is state of the process: it may be lost, and a check puts it back."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.live.small_loops import check


@pytest.mark.parametrize("lost", [True, False])
def test_what_numpy_does_about_an_overflow(lost: bool) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, state = np.ones(2, np.float32), 0, folder / "state.pkl"
        if state.exists():
            w, start, answers = pickle.loads(state.read_bytes())
            if not lost:
                np.seterr(**answers)
        for n in range(start, steps):
            yield n
            if n == 6:
                np.seterr(over="raise")
            try:
                scale = min(float(np.exp(np.float32(100) * w[0] * w[0] * (n % 5 == 4))), 2.0)
            except FloatingPointError:
                scale = 0.5
            w = (w - np.float32(0.1) * scale * (w - np.float32(1 + n % 3))).astype(np.float32)
            if n % 4 == 3:
                state.write_bytes(pickle.dumps((w, n + 1, np.geterr())))

    before = np.geterr()
    with np.errstate(over="ignore"):
        found = check(train, steps=16, stop_at=11)
        assert np.geterr()["over"] == "ignore"
    assert np.geterr() == before
    assert found.verdict == ("broken" if lost else "holds"), found
    assert [one.path for one in found.suspects[:1]] == ["numpy.geterr()"] * lost
