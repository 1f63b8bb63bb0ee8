"""Which files there are, and where links to directories point, is what a run leaves too."""

import math
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from tests.live.small_loops import check, first


def marks(folder: Path, total: float) -> None:
    (folder / f"v{int(total * 7) % 50}").touch()


def links(folder: Path, total: float) -> None:
    for name in ("small", "large"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "note.txt").write_text(name)
    if os.path.lexists(folder / "now"):
        os.unlink(folder / "now")
    os.symlink("large" if total > 6 else "small", folder / "now")


@pytest.mark.parametrize("leave", [marks, links])
@pytest.mark.parametrize("lost", [True, False])
def test_what_a_run_leaves(leave: object, lost: bool) -> None:
    assert callable(leave)

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, total, path = np.ones(2), 0, 0.0, folder / "state.pkl"
        if path.exists():
            w, start, kept = pickle.loads(path.read_bytes())
            total = 0.0 if lost else kept
        for number in range(start, steps):
            yield number
            error = w - math.sin(number)
            w, total = w - 0.3 * error, total + float(abs(error).max())
            if number % 4 == 3:
                leave(folder, total)
                path.write_bytes(pickle.dumps((w, number + 1, 0.0 if lost else total)))

    found = check(train, scenarios=("kill",))
    assert found.verdict == ("broken" if lost else "holds"), found
    if lost:
        assert first(found) == "total"


def test_a_link_to_the_folder_of_a_process_is_its_own() -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, path = np.ones(2), 0, folder / "state.pkl"
        if path.exists():
            w, start = pickle.loads(path.read_bytes())
        mine = folder / f"version_{len(list(folder.glob('version_*')))}"
        mine.mkdir()
        (mine / "began.txt").write_text(f"at {start}\n")
        if os.path.lexists(folder / "newest"):
            os.unlink(folder / "newest")
        os.symlink(mine.name, folder / "newest")
        for number in range(start, steps):
            yield number
            w = w - 0.3 * (w - math.sin(number))
            if number % 4 == 3:
                path.write_bytes(pickle.dumps((w, number + 1)))

    found = check(train)
    assert found.verdict == "holds", found


def told(folder: Path, lost: bool = False, repeats: bool = False) -> Iterator[int]:
    """Log one of few words in each step, without its number, and make a directory of it; all by a running mean."""
    w, step, mean, size, file = np.zeros(2), 0, 0.0, 0, folder / "state.pkl"
    log = folder / "told.txt"
    if file.exists():
        w, step, kept, size = pickle.loads(file.read_bytes())
        mean = 0.0 if lost else kept
        if not repeats:
            with log.open("r+b") as open_log:
                open_log.truncate(size)
    while step < 24:
        yield step
        w = 0.9 * w + np.sin(step)
        mean = 0.8 * mean + abs(float(w[0]))
        word = "high" if mean > 3.3 else "low"
        step += 1
        with log.open("a") as open_log:
            open_log.write(f"{word}\n")
        (folder / f"{word}{int(2 * mean)}-{step // 13}").mkdir(exist_ok=True)
        if step % 4 == 0:
            file.write_bytes(pickle.dumps((w, step, mean, 0 if repeats else log.stat().st_size)))


def test_the_order_of_the_lines_of_a_log_and_empty_directories_are_compared() -> None:
    def judged(**options: Any) -> Any:
        return parity.resumes(told, steps=24, stop_at=15, mode="inline", scenarios="kill", options=options)

    assert judged().verdict == "holds"
    assert judged(repeats=True).verdict == "holds"  # lines that were made again stand there twice
    found = judged(lost=True)
    assert (found.verdict, found.suspects[0].path) == ("broken", "mean")
    paths = {one.path for one in found.suspects}
    assert "told.txt: all lines in order" in paths
    assert any(path.startswith(("high", "low")) for path in paths)


def raw(path: Path, step: int, w: np.ndarray, v: np.ndarray) -> Path:
    path.write_bytes(bytes([step]) + w.tobytes() + v.tobytes())
    return path


@pytest.mark.parametrize("of_a_full_path", [True, False])
@pytest.mark.parametrize("to", ["a file", "a directory"])
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("scenarios", [("kill",), pytest.param("all", marks=pytest.mark.soak)])
def test_the_newest_checkpoint_may_be_a_link(to: str, of_a_full_path: bool, lost: bool, scenarios: Any) -> None:
    """The folder of a run is copied and called otherwise; what a link leads to in it goes along."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, v, start, latest = np.ones(3), np.zeros(3), 0, folder / "latest"
        if latest.exists():
            held = (latest if to == "a file" else latest / "state.raw").read_bytes()
            start, w = held[0], np.frombuffer(held[1:25])
            v = v if lost else np.frombuffer(held[25:])
        for number in range(start, steps):
            yield number
            v = 0.5 * v + w - math.sin(number)
            w = w - 0.1 * v
            if number % 4 == 3:
                if to == "a directory":
                    (newest := folder / f"step{number + 1}").mkdir()
                    raw(newest / "state.raw", number + 1, w, v)
                else:
                    newest = raw(folder / f"step{number + 1}.raw", number + 1, w, v)
                latest.unlink(missing_ok=True)
                latest.symlink_to(newest.absolute() if of_a_full_path else newest.name)

    found = check(train, scenarios=scenarios)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found) == "v"


@pytest.mark.parametrize("lost", [True, False])
def test_each_process_may_keep_its_checkpoints_in_a_directory_of_its_own(lost: bool) -> None:
    """The last of them is written behind the last mark, and may be the only one of its process."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, v, start, before = np.ones(3), np.zeros(3), 0, sorted(folder.glob("run-*/*.npz"))
        mine = folder / f"run-{len(list(folder.glob('run-*')))}"
        mine.mkdir()
        if before:
            with np.load(before[-1]) as held:
                w, v, start = held["w"], v if lost else held["v"], int(held["step"])
        for number in range(start, steps):
            yield number
            v = 0.5 * v + w - math.sin(number)
            w = w - 0.1 * v
            if number % 4 == 3:
                np.savez(mine / f"{number + 1:02}.npz", w=w, v=v, step=number + 1)

    found = check(train, scenarios=("kill", "again", "third"))
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    if lost:
        assert first(found) == "v"
