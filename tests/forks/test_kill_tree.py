"""A kill takes along what a process started, in whatever session it is."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.forks import kill_tree
from parity.reference.planned.process import TrainingProcess

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found below /proc")

STARTS = ["bash", "-c", "setsid sleep 60 & echo $!; wait"]


def ended(pid: int) -> bool:
    """Return whether a process ends within a second; one that nobody has asked about has ended."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_a_kill_reaches_a_child_that_has_a_session_of_its_own() -> None:
    with subprocess.Popen(STARTS, stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        kill_tree(process.pid)
        assert process.wait() == -9
        assert ended(child)


def test_a_training_process_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with TrainingProcess(STARTS, tmp_path, log) as process:
        while not log.read_text().endswith("\n"):
            time.sleep(0.01)
        process.kill()
        assert ended(int(log.read_text()))
