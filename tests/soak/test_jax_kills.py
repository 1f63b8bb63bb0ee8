"""SIGKILL of JAX processes over which one state is split: no hang, one line that names who is gone, nothing lost.

`PARITY_JAX_KILLS` is the number of kills of each mesh; about 30 seconds each on two busy cores.
"""

import os
import random
import re
import time
from itertools import product

import pytest

from parity.checkpoints import verify
from parity.reference.planned import read_evidence
from parity.storage import read_lines
from tests.support.several import Several
from tests.support.small import SHRUNK, bits_of

pytestmark = pytest.mark.soak

KILLS = int(os.environ.get("PARITY_JAX_KILLS", "12"))
STEPS = 60
"""Steps for each kill: more than one attempt takes until it is killed."""
SPLIT = [*SHRUNK["mlp-digits"], "mesh.fsdp=2", "mesh.model=2", "save.every=5", "execution.chunk=1"]
KINDS = tuple(product(("another", "coordinator", "all"), ("anywhere", "in a save")))
SECONDS = 60
"""Longest the others may take to end; the limit for one that is stopped is 120."""


def started(home, count, steps):
    return Several(home, "mlp-digits", SPLIT, "--steps", str(steps), count=count, side="jax")


def drafts(run):
    """Return the names in the folder of checkpoints that are no steps: of saves under way, or left by one."""
    return [path.name for path in run.checkpoints.glob("*") if not path.name.isdigit()] if run.exists else []


def wait_for(several, condition):
    """Wait until a condition holds; return whether it did before the run ended."""
    until = time.monotonic() + 300
    while not condition():
        if all(process.poll() is not None for process in several.processes.values()):
            return False
        assert time.monotonic() < until, "it stands still"
        time.sleep(0.001)
    return True


@pytest.mark.parametrize("count", [2, 4])
def test_killed_processes_end_the_others_and_the_run_resumes_bit_for_bit(count, tmp_path):
    """One of them, the coordinator of JAX (process 0), or all; at a random moment, and where a save is under way."""
    (quiet := tmp_path / "quiet").mkdir()
    steps = STEPS * KILLS
    with started(quiet, count, steps) as several:
        ends = several.ends(900)
    assert [(code, err) for code, _, err in ends] == [(0, "")] * count, ends
    expected = {record.step: bits_of([record]) for record in read_evidence(several.run.path).records}
    assert set(expected) == set(range(1, steps + 1))

    dice, slowest, cut = random.Random(count), 0.0, 0
    for number in range(KILLS):
        whom, where = KINDS[number % len(KINDS)]
        with started(tmp_path, count, steps) as several:
            run = several.run
            before = len(read_lines(run.steps)) if run.exists else 0
            target = before + dice.randint(1, 25)
            assert wait_for(several, lambda run=run, target=target: len(read_lines(run.steps)) >= target)
            if where == "in a save":
                assert wait_for(several, lambda run=run: drafts(run))
            else:
                time.sleep(dice.random() * 0.1)
            victims = {"another": [dice.randrange(1, count)], "coordinator": [0], "all": list(range(count))}[whom]
            for victim in victims:
                several[victim].kill()
            began = time.monotonic()
            ends = {index: several.end(index, SECONDS) for index in several.processes}
            slowest = max(slowest, time.monotonic() - began)
            cut += bool(drafts(run))
        for index, (code, _, err) in ends.items():
            if index in victims:
                assert code == -9, (number, index, code, err)
                continue
            assert code == 3, (number, whom, where, index, code, err)
            assert len(err.splitlines()) == 1, (number, whom, where, err)
            (victim,) = victims
            gone = rf"process {victim} of {count} \({several[victim].pid} on \S+\) is gone"
            assert re.search(gone, err), (number, whom, where, err)
        for saved in run.store.scan().whole:
            assert verify(run.checkpoints / str(saved.step)).whole
    with started(tmp_path, count, steps) as several:
        ends = several.ends(900)
    assert [(code, err) for code, _, err in ends] == [(0, "")] * count, ends

    attempts = read_lines(run.attempts)
    print(f"{count} processes: {KILLS} kills, {len(attempts)} attempts, {cut} drafts cut, ended in {slowest:.1f} s")
    assert len(KINDS) > KILLS or cut > 0, "no kill fell into a save"
    found = read_evidence(run.path).records  # of all attempts: what was repeated is the same too
    assert {record.step for record in found} == set(expected)
    assert [record.step for record in found if bits_of([record]) != expected[record.step]] == []
    assert drafts(run) == []
