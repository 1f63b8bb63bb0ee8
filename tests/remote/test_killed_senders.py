"""Processes that send are killed at random moments, or stopped beyond their lease and woken: nothing half or lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.checkpoints.remote import read_head, verify_remote
from parity.storage.stores import open_store
from tests.remote.sender import KEPT
from tests.remote.server import Server

ROOT = Path(__file__).resolve().parents[2]


def start(url: str, home: Path, token: str, first: int, seconds: float = 60.0) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.remote.sender", url, str(home), token, str(first), str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def first_line(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1][-2000:]
    return int(line)


def require_whole(url: str, told: int) -> int:
    """Return the newest step; each that the head names is whole, and what was told of is there."""
    store = open_store(url)
    head = read_head(store)
    assert head is not None
    assert all(verify_remote(store, row).whole for row in head.checkpoints.values())
    newest = max(head.checkpoints)
    assert newest >= told
    assert len(head.checkpoints) in (KEPT, KEPT + 1) or newest <= KEPT + 1
    return newest


def kill_often(server: Server, home: Path, kills: int) -> None:
    draw, url, told = random.Random(4), "s3://bucket/a", 1
    for _ in range(kills):
        process = start(url, home, "first", told + 1)
        told = first_line(process)
        time.sleep(draw.uniform(0, 0.15))
        process.kill()
        out = process.communicate()[0].split()
        told = require_whole(url, max([told, *map(int, out)]))
    assert told > kills


def settle(server: Server) -> None:
    """Wait until what a stopped process had sent is answered: done by a later clock, it would renew the lease."""
    seen = -1
    while seen != len(server.requests):
        seen = len(server.requests)
        time.sleep(0.25)


def stop_and_wake(server: Server, home: Path, times: int) -> None:
    draw = random.Random(6)
    for number in range(times):
        url = f"s3://bucket/{number}"
        one = start(url, home / f"one{number}", "one", 1, seconds=2)
        first_line(one)
        time.sleep(draw.uniform(0, 0.1))
        one.send_signal(signal.SIGSTOP)
        settle(server)
        now = server.memory.now
        server.memory.now = lambda now=now: now() + 10  # type: ignore[method-assign,misc]
        two = start(url, home / f"two{number}", "two", 1000, seconds=60)
        first_line(two)
        one.send_signal(signal.SIGCONT)
        error = one.communicate(timeout=30)[1]
        assert "this process lost the lease (epoch 1)" in error
        assert "to process " in error
        two.kill()
        told = two.communicate()[0].split()
        require_whole(url, max([1000, *map(int, told)]))
        head = read_head(open_store(url))
        assert head is not None
        assert all(row.epoch == 2 for row in head.checkpoints.values() if row.step >= 1000)
        server.memory.now = time.time  # type: ignore[method-assign]


@pytest.mark.processes
def test_kills_at_random_moments_leave_every_checkpoint_whole(server: Server, tmp_path: Path) -> None:
    kill_often(server, tmp_path, 4)


@pytest.mark.processes
def test_a_process_that_is_stopped_beyond_its_lease_and_woken_adds_nothing(server: Server, tmp_path: Path) -> None:
    stop_and_wake(server, tmp_path, 1)


@pytest.mark.soak
def test_two_hundred_kills(server: Server, tmp_path: Path) -> None:
    kill_often(server, tmp_path, 200)


@pytest.mark.soak
def test_fifty_stopped_and_woken(server: Server, tmp_path: Path) -> None:
    stop_and_wake(server, tmp_path, 50)
