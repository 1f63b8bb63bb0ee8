"""A window that is drawn ahead moves the generator with it: the state is still that of the step that the run says."""

import pickle
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.live.small_loops import check, first


@pytest.mark.parametrize("lost", ["", "ahead", "rng"])
def test_what_was_lost_of_it_is_named_and_no_counter(lost: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, rng, ahead, start = np.zeros(3), np.random.default_rng(3), deque[np.ndarray](), 0
        file = folder / "state.pickle"
        if file.exists():
            start, w, held, window = pickle.loads(file.read_bytes())
            rng = rng if lost == "rng" else held
            ahead = ahead if lost == "ahead" else window
        for step in range(start, steps):
            while len(ahead) < 3:
                ahead.append(rng.normal(size=(6, 3)))
            yield step
            x = ahead.popleft()
            w = w - 0.1 * x.T @ (x @ (w - [1, 2, 3])) / 6
            if step % 4 == 3:
                file.write_bytes(pickle.dumps((step + 1, w, rng, ahead)))

    found = check(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found).startswith(lost), found.text()
        assert all(one.component != "counters.step" for one in found.suspects), found.text()
