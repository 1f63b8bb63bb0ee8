"""JAX processes that save beside training never wait for each other without end, wherever one of them is late.

`PARITY_SAVES` is the number of saves of one start, `PARITY_STARTS` the number of short starts.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.checkpoints import verify
from parity.runs.launching import variables
from tests.soak.saving_loop import PLACES
from tests.support.ports import free_port
from tests.support.several import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.processes]

SAVES = int(os.environ.get("PARITY_SAVES", "250"))
STARTS = int(os.environ.get("PARITY_STARTS", "20"))
PROGRAM = Path(__file__).with_name("saving_loop.py")


def saved_beside(home: Path, saves: int, place: str, who: str, count: int = 2, seconds: float = 300) -> float:
    """Have processes save, all of them to the end; return what that took."""
    home.mkdir(parents=True, exist_ok=True)
    port, began = free_port(), time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    env.pop("XLA_FLAGS", None)
    command = [sys.executable, "-X", "faulthandler", str(PROGRAM), str(home), str(saves), place, who]
    files = [(home / f"{index}.out").open("w") for index in range(count)]
    started = [
        subprocess.Popen(command, env=env | variables(index, count, port), stdout=file, stderr=file, cwd=home)
        for index, file in enumerate(files)
    ]
    try:
        for process in started:
            process.wait(timeout=began + seconds - time.monotonic())
    finally:
        for process in started:
            process.kill()
        for file in files:
            file.close()
    told = "\n".join((home / f"{index}.out").read_text()[-3000:] for index in range(count))
    assert [process.returncode for process in started] == [0] * count, told
    assert {(home / f"{index}.txt").read_text() for index in range(count)} == {str(saves)}
    steps = sorted(path for path in (home / "run" / "checkpoints").iterdir())
    assert len(steps) == 3, steps  # and no draft
    assert all(verify(path).whole for path in steps)
    return time.monotonic() - began


def test_many_saves_of_one_start_come_to_their_end_with_every_process_late_everywhere(tmp_path):
    took = saved_beside(tmp_path, SAVES, "all", "all", seconds=900)
    print(f"{SAVES} saves in one start, every process late at every place: {took:.0f} s")


@pytest.mark.parametrize("who", ["0", "1"])
@pytest.mark.parametrize("place", PLACES)
def test_one_process_may_be_late_at_any_place(place, who, tmp_path):
    took = saved_beside(tmp_path, 40, place, who)
    print(f"process {who} late before {place}: 40 saves, {took:.0f} s")


def test_many_starts_come_to_their_end(tmp_path):
    took = [saved_beside(tmp_path / str(number), 10, "all", "all") for number in range(STARTS)]
    print(f"{STARTS} starts of 10 saves: {min(took):.0f} to {max(took):.0f} s each")


def test_four_processes_come_to_their_end(tmp_path):
    took = saved_beside(tmp_path, 60, "all", "all", count=4, seconds=600)
    print(f"four processes, 60 saves: {took:.0f} s")
