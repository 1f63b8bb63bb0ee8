"""`parity launch`: several processes of a command on this machine, one exit code, and none that stays."""

import os
import signal
import subprocess
import sys
import time

import pytest

from parity.cli import main
from parity.runs import launch

RANK = "import os, sys, time, signal; rank = int(os.environ['RANK']); "


def run(code, count=2):
    return launch([sys.executable, "-S", "-c", RANK + code], count)


def test_every_process_has_its_place_for_both_frameworks(tmp_path):
    names = "('RANK', 'WORLD_SIZE', 'JAX_PROCESS_ID', 'JAX_NUM_PROCESSES', 'MASTER_ADDR', 'JAX_COORDINATOR_ADDRESS')"
    write = f"open(r'{tmp_path}/' + str(rank), 'w').write(' '.join(os.environ[name] for name in {names}))"
    assert run(write, 3) == 0
    for index in range(3):
        rank, world, process, number, host, address = (tmp_path / str(index)).read_text().split()
        assert (rank, world, process, number, host) == (str(index), "3", str(index), "3", "localhost")
        assert address.startswith("localhost:")


def test_the_exit_code_is_that_of_the_first_that_failed():
    assert run("sys.exit(4 if rank else 0)") == 4
    assert run("os.kill(os.getpid(), signal.SIGKILL) if rank else sys.exit(0)") == 128 + signal.SIGKILL


def test_what_does_not_end_with_the_others_is_killed_and_named(monkeypatch, capfd):
    monkeypatch.setattr("parity.runs.launching.END_SECONDS", 0.5)
    began = time.monotonic()
    assert run("sys.exit(3) if rank else time.sleep(60)") == 3
    assert time.monotonic() - began < 30
    assert "parity: error: process 0 of 2 (" in (err := capfd.readouterr().err)
    assert "did not end within 0.5 s: killed" in err


@pytest.mark.takes_seconds
def test_a_signal_goes_to_all(tmp_path):
    ready = f"open(r'{tmp_path}/' + str(rank), 'w').close(); "
    code = RANK + ready + "time.sleep(60)"
    words = f"import sys; from parity.runs import launch; sys.exit(launch([sys.executable, '-S', '-c', {code!r}], 2))"
    process = subprocess.Popen(
        [sys.executable, "-c", words], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    until = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--processes", "2"], "expected -- train and its options, got nothing"),
        (["--processes", "2", "--", "check"], "expected -- train and its options, got 'check'"),
        (["--processes", "1", "--", "train"], "expected at least 2; one process needs no launcher"),
    ],
)
def test_what_it_cannot_start_is_refused_in_one_line(words, said, capsys):
    assert main(["launch", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
