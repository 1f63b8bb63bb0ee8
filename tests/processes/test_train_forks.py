"""Training processes of a check as forks: when they are, that they differ as new interpreters do, and their ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parity import environment, sides
from parity.cli.train_forks import TrainForks
from parity.contract import child_environment
from parity.forks import Forked
from parity.reference import check_twin_resume, drill_spec, train_command
from parity.spec import load

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone"),
]

TORCH = sides.load("torch")
SPEC = load("mlp-digits", "float32", ["model.hidden=[4]", "data.validation=4"])


@pytest.fixture(autouse=True)
def steady_environment(monkeypatch):
    """Take out what pytest changes with every test: processes are forked for the environment of their servers."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)


@pytest.fixture(scope="module")
def forks():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)
        made = TrainForks({"torch": TORCH})
    with made:
        yield made


def begin(forks, home, *words, environment=None):
    command = [*train_command(drill_spec(SPEC, 10), "torch", home / "spec.toml")(home / "run", None), *words]
    with (home / "log").open("ab") as out:
        return forks.begin(command, out, environment or child_environment(TORCH))


def printed(home):
    return (home / "log").read_text()


def test_a_process_is_a_fork_that_trains_to_its_end(forks, tmp_path):
    process = begin(forks, tmp_path)
    assert isinstance(process, Forked)
    assert process.poll() is None
    assert process.wait(120) == 0, printed(tmp_path)
    assert process.poll() == 0
    assert "done: step 10" in printed(tmp_path)
    assert json.loads((tmp_path / "run" / "steps.jsonl").read_text().splitlines()[-1])["step"] == 10


def test_processes_of_one_run_have_different_hash_seeds_in_turn(forks, tmp_path):
    """Two servers take turns: the parent of each process is the one or the other."""
    parents = []
    for _ in range(4):
        process = begin(forks, tmp_path)
        parents.append(int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]))
        process.end()
    assert len(set(parents)) == 2
    assert parents[:2] == parents[2:]
    assert os.getpid() not in parents


def test_an_error_is_printed_and_is_the_exit_code(forks, tmp_path):
    process = begin(forks, tmp_path, "--set", "steps=-1")
    assert process.wait(120) == 2
    assert "steps" in printed(tmp_path)
    assert "Traceback" not in printed(tmp_path)


def test_a_signal_is_delivered_and_a_kill_reported(forks, tmp_path):
    process = begin(forks, tmp_path, "--set", "steps=1000000")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.end()
    assert process.poll() == -signal.SIGKILL


def test_elsewhere_a_new_interpreter_is_started(forks, tmp_path):
    other = begin(forks, tmp_path, environment={**child_environment(TORCH), "OMP_NUM_THREADS": "7"})
    other.kill()
    assert isinstance(other, subprocess.Popen)
    other.wait()
    with (tmp_path / "log").open("ab") as out:
        program = forks.begin(["true"], out, child_environment(TORCH))
    assert isinstance(program, subprocess.Popen)
    assert program.wait() == 0


def test_beside_an_accelerator_nothing_is_forked(tmp_path, monkeypatch):
    (tmp_path / "device0").touch()
    monkeypatch.setattr(environment, "ACCELERATORS", (str(tmp_path / "device*"),))
    with TrainForks({"torch": TORCH}) as forks:
        process = begin(forks, tmp_path)
        process.kill()
        assert isinstance(process, subprocess.Popen)
        process.wait()


def test_a_server_that_is_gone_is_done_without(tmp_path):
    with TrainForks({"torch": TORCH}) as forks:
        running = begin(forks, tmp_path, "--set", "steps=1000000")
        for server in forks._servers["torch"]:
            server._process.kill()
        assert running.wait(60) == -signal.SIGKILL, "what it has forked ends with it"
        process = begin(forks, tmp_path)
        process.kill()
        assert isinstance(process, subprocess.Popen)
        process.wait()


@pytest.mark.soak
def test_the_verdict_is_that_of_new_interpreters(forks, tmp_path):
    spec = drill_spec(SPEC, 10)
    found = [
        check_twin_resume(spec, "torch", TORCH, tmp_path / name, **given)
        for name, given in (("forks", {"begin": forks.begin}), ("new", {}))
    ]
    assert [record.verdict for record in found] == ["holds", "holds"]
    assert found[0].digests == found[1].digests
    assert found[0].steps_compared == found[1].steps_compared == 10
