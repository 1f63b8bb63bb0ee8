"""Runs in processes that are forked: when they are, that they begin as a new interpreter does, and how they end."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parity
from parity import environment
from parity.checks.resume.session import Session
from parity.checks.running import child, process
from parity.forks import safe
from parity.results import Resumption
from tests.live import imports_of_users, lambda_loader, seeded_module, threaded_module
from tests.live.jax_trainers import train_raw
from tests.live.test_red_torch import train as red

pytestmark = pytest.mark.processes

linux = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")


def check(train: Callable[..., Any], scenarios: str = "kill", **options: Any) -> Resumption:
    return parity.resumes(train, steps=12, stop_at=6, mode="process", scenarios=scenarios, options=options)


def noted(train: Callable[..., Any], file: Path, scenarios: str = "kill") -> list[dict[str, int]]:
    """Return what the processes of a check say of themselves, in the order in which they began."""
    assert check(train, scenarios, note=str(file)).verdict == "holds"
    return [json.loads(line) for line in file.read_text().splitlines()]


@linux
def test_the_first_run_and_those_that_resume_are_forked_and_the_one_that_saves_is_not(tmp_path: Path) -> None:
    seen = noted(imports_of_users.in_saved_order, tmp_path / "note", "kill,again")
    here = os.getpid()
    forked, new = [p for p in seen if p["parent"] != here], [p for p in seen if p["parent"] == here]
    assert (len(forked), len(new)) == (4, 1)
    assert len({p["parent"] for p in forked}) == 1
    assert len({p["hash"] for p in forked}) == 1, "forks share the order of their sets"
    assert new[0]["hash"] != forked[0]["hash"], "what saves has another order than what resumes"
    assert len({p["pid"] for p in seen}) == 5


def test_values_that_are_saved_in_the_order_of_a_set_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the run that saves is started before the reference, beside which it runs."""
    first = Session._first_run
    monkeypatch.setattr(Session, "_first_run", lambda self, asked: time.sleep(0.5) or first(self, asked))
    found = check(imports_of_users.in_order_of_a_set)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path.startswith("weights"), found.text()


@pytest.mark.parametrize("mode", ["process", "inline"])
def test_what_a_module_seeds_at_its_top_stays_seeded(mode: Any) -> None:
    found = parity.resumes(seeded_module.train, steps=12, stop_at=6, mode=mode, scenarios="kill")
    assert found.verdict == "holds", found.text()
    assert found.equal_runs == 0, "bit by bit, not by an envelope of runs that part"
    unseeded = parity.resumes(imports_of_users.draws, steps=12, stop_at=6, mode=mode, scenarios="kill")
    assert unseeded.verdict == "inconclusive", "nobody seeded: two processes draw differently"


@linux
def test_workers_of_a_loop_are_started_as_they_always_are() -> None:
    found = check(lambda_loader.loads_by_a_lambda)
    assert found.verdict == "holds", found.text()


def test_a_module_that_starts_a_thread_is_imported_by_each_process(tmp_path: Path) -> None:
    seen = noted(threaded_module.train, tmp_path / "note")
    assert {p["parent"] for p in seen} == {os.getpid()}
    assert {p["threads"] for p in seen} == {2}


def test_beside_an_accelerator_nothing_is_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "device0"
    device.touch()
    monkeypatch.setattr(environment, "ACCELERATORS", (str(tmp_path / "device*"),))
    assert not safe.can_fork()
    seen = noted(imports_of_users.in_saved_order, tmp_path / "note")
    assert {p["parent"] for p in seen} == {os.getpid()}


def faulty() -> Resumption:
    """Check a loop that does not save its scheduler."""
    return parity.resumes(red, steps=24, stop_at=17, mode="process", scenarios="kill", options={"fault": "scheduler"})


def test_a_fault_is_found_in_processes_too() -> None:
    found = faulty()
    assert (found.verdict, found.components[0], found.mode) == ("broken", "schedule.step", "process")


@pytest.mark.soak
def test_the_verdict_is_that_of_new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = faulty()
    monkeypatch.setattr(process, "can_fork", lambda: False)
    assert faulty().suspects == forked.suspects


def test_an_import_that_draws_ends_the_forking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(child, "_is_installed", lambda name: name.startswith("parity_test_"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "parity_test_quiet.py").write_text("VALUE = 3\n")
    (tmp_path / "parity_test_broken.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "parity_test_draws.py").write_text("import random\nrandom.random()\n")
    state = random.getstate()
    assert child._Runs().load(["parity_test_quiet", "parity_test_broken", "parity_test_gone"])
    assert "parity_test_quiet" in sys.modules
    assert not child._Runs().load(["parity_test_draws"])
    random.setstate(state)


def test_modules_of_users_are_left_to_their_runs() -> None:
    assert child._is_installed("json.decoder")
    assert child._is_installed("torch.optim")
    assert not child._is_installed("tests.live.seeded_module")


@linux
def test_processes_are_killed_and_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_TEST", str(tmp_path))  # whatever is started from here on has it
    found = parity.resumes(
        lambda_loader.loads_by_a_lambda, steps=12, stop_at=6, mode="process", workdir=tmp_path, scenarios="kill"
    )
    assert found.verdict == "holds", found.text()
    assert found.mode == "process"
    left = [
        path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if str(tmp_path).encode() in _read(path)
    ]
    assert [pid for pid in left if b"resource_tracker" not in _read(Path("/proc", pid, "cmdline"))] == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes() if int(path.parent.name) != os.getpid() else b""
    except OSError:
        return b""


@linux
def test_a_check_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import os, time
            import parity

            def train(folder):
                with open({str(tmp_path / "pids")!r}, "a") as file:
                    file.write(f"{{os.getpid()}} {{os.getppid()}}\\n")
                weight = 1.0
                for step in range(12):
                    yield step
                    weight *= 1.01
                    (folder / "weight").write_text(str(weight))
                    time.sleep(60)

            if __name__ == "__main__":
                parity.resumes(train, steps=12, stop_at=6, mode="process")
        """)
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # what a killed check leaves is not left in the system's folder
    run = subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.DEVNULL)
    pids = wait_for(lambda: (tmp_path / "pids").read_text().split(), 4)
    run.send_signal(signal.SIGKILL)
    run.wait()
    theirs = {int(pid) for pid in pids} - {run.pid}
    assert len(theirs) == 3, "two runs, and what forked one of them"
    wait_for(lambda: [pid for pid in theirs if not alive(pid)], 3)


def wait_for(look: Callable[[], list[Any]], count: int) -> list[Any]:
    """Return what is found when there is enough of it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if len(found := look()) >= count:
                return found
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("it took a minute")


def alive(pid: int) -> bool:
    """Return whether a process runs; one that ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.soak
def test_what_jax_compiles_is_kept_for_the_check(tmp_path: Path, compiled_anew: None) -> None:
    found = parity.resumes(train_raw, steps=12, stop_at=7, mode="process", scenarios="kill", workdir=tmp_path)
    assert found.verdict == "holds", found.text()
    assert list((tmp_path / "programs").glob("*-cache")), "each process compiled anew"


def test_threads_of_runs_that_go_side_by_side_wait_without_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with process.ProcessRunner(imports_of_users.draws, Path("."), fork=False):
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with process.ProcessRunner(imports_of_users.draws, Path("."), fork=False):
        assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE", "what is set stays"
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
