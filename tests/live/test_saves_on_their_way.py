"""A save in a thread that a kill comes upon: never a loss, and never a proof."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.running import folder as folders

STEPS, STOP = 12, 7


def trainer(pause: float, *, finds: bool = True, moves: bool = True) -> Any:
    """Return a loop that saves each fourth step in a thread, which takes a while to give the file its name."""

    def train(folder: Path, steps: int = STEPS) -> Any:
        weights, start, writing = np.zeros(3), 0, None
        for found in sorted(folder.glob("state-*.npy")) if finds else []:
            weights, start = np.load(found), int(found.stem.partition("-")[2])

        def finish(values: np.ndarray[Any, Any], draft: Path, to: Path) -> None:
            with suppress(FileNotFoundError):  # the folder of a run that was killed may be gone
                time.sleep(pause)
                np.save(draft, values)
                if moves:
                    os.rename(draft, to)

        for step in range(start, steps):
            yield step
            weights = weights * 0.9 + step
            if step % 4 == 3:
                if writing is not None:
                    writing.join()
                to = folder / f"state-{step + 1:03}.npy"
                draft = folder / f"draft-{step + 1}.npy" if moves else to
                if moves:
                    draft.touch()  # a library makes the draft at once and fills it in its thread
                writing = threading.Thread(target=finish, args=(weights.copy(), draft, to))
                writing.start()
        if writing is not None:
            writing.join()
        return weights

    return train


def check(train: Any, **options: Any) -> Any:
    return parity.resumes(train, steps=STEPS, stop_at=STOP, mode="inline", scenarios="kill", **options)


def test_a_kill_waits_for_a_save_that_is_nearly_done() -> None:
    found = check(trainer(0.1))
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_file_that_gets_its_name_some_steps_later_is_the_newest(late: int) -> None:
    def train(folder: Path, steps: int = STEPS, *, older: bool = False) -> Any:
        weights, start, waiting = np.zeros(3), 0, None
        found = sorted(folder.glob("state-*.npy"))
        for name in found[: 1 if older else None]:
            weights, start = np.load(name), int(name.stem.partition("-")[2])
        for step in range(start, steps):
            yield step
            weights = weights * 0.9 + step
            if waiting is not None and step == waiting[0]:
                np.save(folder / f"state-{waiting[1]:03}.npy", waiting[2])
                waiting = None
            if step % 4 == 3:
                waiting = step + late, step + 1, weights.copy()
        return weights

    found = parity.resumes(train, steps=16, stop_at=14, mode="inline", scenarios="kill")
    assert found.verdict == "holds", found.text()
    found = parity.resumes(train, steps=16, stop_at=14, mode="inline", scenarios="kill", options={"older": True})
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "checkpoint.latest", found.text()


def test_a_save_that_was_not_finished_is_no_loss_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LISTINGS", 1)
    found = check(trainer(1.0))
    assert found.verdict == "inconclusive", found.text()
    assert "before a save that had begun was finished" in found.text()


@pytest.mark.parametrize("moves", [False, True])
def test_a_whole_save_that_is_not_found_is_lost(moves: bool) -> None:
    found = check(trainer(0.0, finds=False, moves=moves))
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "checkpoint.latest", found.text()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_rotation_by_new_names_is_no_save_on_its_way(keeps: bool) -> None:
    def train(folder: Path, steps: int = STEPS) -> Iterator[int]:
        weights = np.zeros(3)
        for step in range(steps):
            yield step
            weights = weights * 0.9 + step
            if step % 2:
                if (folder / "last.npy").exists():
                    os.replace(folder / "last.npy", folder / "previous.npy")
                    if not keeps:
                        os.remove(folder / "previous.npy")
                np.save(folder / "last.npy", weights)

    found = check(train)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "checkpoint.latest", found.text()


GROWTHS = {
    "a file that was empty when it was looked at": ([b"", b"words\n"], False),
    "a header and then numbers": ([b"\x93NUMPY", b"\0\1\2\3"], False),
    "a header and then numbers that are valid UTF-8": ([b"\x93NUMPY", np.full(3, 5.61).tobytes()], False),
    "lines": ([b"step 1\n", b"step 2\n"], True),
    "events, again and again": ([b"\1\0a", b"\1\0b", b"\1\0c"], True),
    "lines, and then anew": ([b"step 1\n", b"step 2\n", None, b"step 3\n"], False),
}


@pytest.mark.parametrize("name", GROWTHS)
def test_a_file_that_is_being_written_is_no_log(tmp_path: Path, name: str) -> None:
    parts, is_log = GROWTHS[name]
    growth, found = folders.LogGrowth(), set()
    for part in parts:
        with (tmp_path / "file").open("wb" if part is None else "ab") as file:
            file.write(part or b"")
        found = growth.appended(tmp_path, ["file"])
    assert found == ({"file"} if is_log else set())
