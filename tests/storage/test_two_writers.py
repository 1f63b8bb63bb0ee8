"""Two writers on one directory: exactly one wins, each time, and the other is told who did."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.errors import LockedError
from parity.runs import RunDirectory
from parity.spec import identity_of, load, to_toml
from parity.storage import WriterLock, read_lines

ROOT = Path(__file__).parents[2]
RACES = 200


class Racer:
    """A process of racing.py."""

    def __init__(self):
        command = [sys.executable, "-m", "tests.storage.racing"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=ROOT)
        self.pid = self.answer()["ready"]

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, line):
        self.say(line)
        return self.answer()


@pytest.fixture
def racers():
    two = [Racer(), Racer()]
    yield two
    for racer in two:
        racer.process.kill()
        racer.process.communicate()


@pytest.mark.processes
def test_of_two_writers_exactly_one_wins_each_of_200_races(racers, tmp_path):
    winners = []
    for race in range(RACES):
        directory = tmp_path / (f"new-{race}" if race % 2 else "old")
        at = time.monotonic() + 0.003
        for racer in racers:
            racer.say(f"{directory}\t{at}")
        answers = [racer.answer() for racer in racers]
        assert sorted(answer["won"] for answer in answers) == [False, True], (race, answers)
        winner = racers[answers[1]["won"]]
        loser = answers[not answers[1]["won"]]
        assert f"{directory} has a writer already: process {winner.pid} on " in loser["text"], (race, loser)
        assert (directory / "lock").exists()
        winner.ask("release")
        assert (directory / "lock").exists()
        winners.append(winner.pid)
    assert set(winners) == {racer.pid for racer in racers}, "one always won: these were no races"


@pytest.mark.processes
@pytest.mark.parametrize("forked", [False, True])
def test_a_killed_owner_leaves_the_lock_free_even_with_a_child_alive(forked, racers, tmp_path):
    owner, other = racers
    assert owner.ask(f"{tmp_path}\t0")["won"]
    child = owner.ask("fork")["child"] if forked else None
    try:
        assert not other.ask(f"{tmp_path}\t0")["won"]
        owner.process.kill()
        owner.process.wait()
        if child is not None:
            os.kill(child, 0)  # it lives
        assert other.ask(f"{tmp_path}\t0")["won"]
    finally:
        if child is not None:
            os.kill(child, signal.SIGKILL)


@pytest.mark.breaks_first
def test_a_process_takes_a_lock_once_until_it_lets_go(tmp_path):
    with WriterLock(tmp_path):
        with pytest.raises(LockedError, match=f"process {os.getpid()}: this one, by another trainer"):
            WriterLock(tmp_path).__enter__()
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(LockedError, match="this one, by another trainer"):
            WriterLock(tmp_path / "link").__enter__()
    with WriterLock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


@pytest.mark.processes
@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_of_two_trainings_one_trains_and_the_other_exits_with_2_and_names_it(side, existing, tmp_path):
    file, run = tmp_path / "spec.toml", RunDirectory(tmp_path / "run")
    small = ["model.hidden=[8]", "batch=8", "mesh.data=1", "execution.chunk=5", "save.every=5", "steps=1000000"]
    spec = load("mlp-digits", None, small)
    file.write_text(to_toml(spec))
    if existing:
        run.open(identity_of(spec), side)
    command = [sys.executable, "-m", "parity", "train", "--side", side, "--spec", str(file), "--dir", str(run.path)]
    pipe = subprocess.PIPE
    two = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=pipe, text=True) for _ in range(2)]
    try:
        until = time.monotonic() + 120
        while all(process.poll() is None for process in two) and time.monotonic() < until:
            time.sleep(0.02)
        ended = [process for process in two if process.poll() is not None]
        assert len(ended) == 1, [process.returncode for process in two]
        (loser,), (winner,) = ended, [process for process in two if process is not ended[0]]
        text = loser.stderr.read()
        assert loser.returncode == 2, text
        assert text.startswith(f"parity: error: {run.path} has a writer already: ")
        assert len(text.splitlines()) == 1, text
        assert f"process {winner.pid} on " in text
        while not run.store.scan().whole and time.monotonic() < until:
            time.sleep(0.02)
        winner.send_signal(signal.SIGTERM)
        assert winner.wait(120) == 128 + signal.SIGTERM, winner.stderr.read()
    finally:
        for process in two:
            process.kill()
            process.wait()
            process.stderr.close()
    assert [row["pid"] for row in read_lines(run.attempts)] == [winner.pid]
    steps = [row["step"] for row in read_lines(run.steps)]
    assert steps == list(range(1, len(steps) + 1))
    assert not run.store.scan().damaged
    assert (run.path / "lock").exists()
