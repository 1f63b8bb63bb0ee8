"""What a function sets for its whole process: no other run finds it, and nor does who asked for the check."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parity
from tests.live.test_bad_input import plain

pytestmark = pytest.mark.breaks_first

SETS: dict[str, Callable[[Path], object]] = {
    "directory": os.chdir,
    "mask": lambda folder: os.umask(0o027),
    "recursion": lambda folder: sys.setrecursionlimit(777),
    "output": lambda folder: setattr(sys, "stdout", sys.stderr),
    "handler": lambda folder: signal.signal(signal.SIGTERM, lambda *_: None),
    "variable": lambda folder: os.environ.update(OF_THE_LOOP="1"),
    "imports": lambda folder: sys.path.insert(0, str(folder)),
}


def surroundings() -> dict[str, object]:
    mask = os.umask(0o022)
    os.umask(mask)
    return {
        "directory": os.getcwd(),
        "mask": mask,
        "recursion": sys.getrecursionlimit(),
        "output": sys.stdout,
        "handler": signal.getsignal(signal.SIGTERM),
        "variable": os.environ.get("OF_THE_LOOP"),
        "imports": list(sys.path),
    }


def trainer(sets: Callable[[Path], object], found: list[dict[str, object]]) -> Callable[[Path, int], Iterator[int]]:
    def train(folder: Path, steps: int) -> Iterator[int]:
        found.append(surroundings())
        file, count, weight = folder / "state.json", 0, 1.0
        if file.exists():
            count, weight = json.loads(file.read_text())
        sets(folder)
        while count < steps:
            yield count
            weight, count = weight * 1.01, count + 1
            file.write_text(json.dumps([count, weight]))

    return train


@pytest.mark.takes_seconds
@pytest.mark.parametrize("what", SETS)
def test_what_a_run_sets_is_put_back(what: str) -> None:
    before, found = surroundings(), list[dict[str, object]]()
    assert parity.resumes(trainer(SETS[what], found), steps=9, stop_at=5, mode="inline").verdict == "holds"
    assert surroundings() == before
    between = [one[what] for one in found]
    assert len(between) > 3
    if what == "variable":  # a library sets some when it is imported, and is not imported again
        assert between[1:] == ["1"] * (len(between) - 1)
    elif what not in ("output", "imports"):  # what is printed is kept, by a stream of its own for each run
        assert between == [before[what]] * len(between)


def test_output_that_a_run_closes_stays_open(capsys: pytest.CaptureFixture[str]) -> None:
    found = parity.resumes(trainer(lambda _: sys.stdout.close(), []), steps=9, stop_at=5, mode="inline")
    print("the verdict:", found.verdict)
    assert "the verdict: holds" in capsys.readouterr().out


@pytest.mark.takes_seconds
def test_a_timer_of_a_killed_run_does_not_end_the_check() -> None:
    """Its handler is gone with it: what comes then would end the process."""

    def alarm(folder: Path) -> None:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    before = signal.getsignal(signal.SIGALRM)
    parity.resumes(trainer(alarm, []), steps=9, stop_at=5, mode="inline")
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    time.sleep(0.35)


@pytest.mark.takes_seconds
def test_a_directory_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert parity.resumes(plain, steps=12, stop_at=7, mode="inline").verdict == "holds"
