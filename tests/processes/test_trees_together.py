"""Trees that lie in several processes: saved together, restored bit for bit by as many, by others and by one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import read_seal, verify
from parity.cli import main
from parity.runs.launching import variables
from tests.support.ports import free_port
from tests.support.several import ROOT, SECONDS
from tests.support.sharing import made_once

pytestmark = pytest.mark.processes

SIDES = ("torch", "jax")
PROGRAM = Path(__file__).with_name("tree_ranks.py")


def run(side: str, home: Path, *cases: str, count: int = 2, codes: tuple[int, ...] = (0,)) -> list[list[Any]]:
    """Run cases in so many processes; return what each process said in each case."""
    port = free_port()
    command = [sys.executable, str(PROGRAM), side, str(home), *cases]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    env.pop("XLA_FLAGS", None)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": home}
    started = [
        subprocess.Popen(command, env=env | (variables(i, count, port) if count > 1 else {}), **pipes)
        for i in range(count)
    ]
    try:
        until = time.monotonic() + SECONDS
        ends = [process.communicate(timeout=until - time.monotonic())[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert {process.returncode for process in started} <= {*codes}, "\n".join(ends)
    return said(home, *cases, count=count)


def said(home: Path, *cases: str, count: int = 2) -> list[list[Any]]:
    """Return what each of so many processes said in each case that they ran."""
    files = [[home / f"{case}.{index}.json" for index in range(count)] for case in cases]
    return [[json.loads(file.read_text()) if file.exists() else None for file in row] for row in files]


@pytest.fixture(scope="module", params=SIDES)
def saved(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, dict[str, Any]]:
    """Two processes that save and restore, and are refused what they may not."""
    cases = [
        "save",
        "beside",
        "late",
        *(["gave_up"] * (request.param == "jax")),
        "restore",
        "refused",
        "full",
        "misread",
        "damaged",
        *(["alike"] * (request.param == "torch")),
    ]

    def make(home: Path) -> None:
        run(request.param, home, *cases)
        run(request.param, home, "alone", count=1)

    home = made_once(tmp_path_factory, f"trees-of-two-{request.param}", make)
    return request.param, home, dict(zip(cases, said(home, *cases), strict=True))


def leaves(path: Path) -> dict[str, str]:
    assert verify(path).whole, path
    return {name: text for name, text in read_seal(path).leaves.items() if name != "counters.step"}


def test_what_two_processes_saved_is_restored_bit_for_bit_by_two_and_by_one(saved: Any) -> None:
    _, home, told = saved
    assert told["save"] == [[[1, 2], 2, 1]] * 2
    assert told["restore"] == [[1, 2, 2.0, {"step": 2}]] * 2
    for count in (1, 2):
        assert list(leaves(home / f"state-{count}").items()) == list(leaves(home / "state").items())
    named = {f"state.{name}": text for name, text in leaves(home / "best-2").items() if name[0] != "@"}
    assert named.items() <= leaves(home / "run" / "checkpoints" / "1").items()
    assert (
        leaves(home / "best-1") == leaves(home / "best-2") != leaves(home / "latest-2") == leaves(home / "latest-1")
    )


def test_the_seal_is_that_of_one_process(saved: Any) -> None:
    _, home, _ = saved
    for path in ("state", "run/checkpoints/1", "run/checkpoints/2"):
        assert list(leaves(home / "alone" / path).items()) == list(leaves(home / path).items())


def test_what_is_written_beside_training_is_what_there_was_when_the_save_was_called(saved: Any) -> None:
    _, home, told = saved
    assert all(steps in ([1], [1, 2]) for steps in told["beside"])
    before = {f"state.{name}": text for name, text in leaves(home / "before").items() if name[0] != "@"}
    for step in (1, 2):
        assert before.items() <= leaves(home / "beside" / "checkpoints" / str(step)).items()


def test_a_thread_that_begins_late_writes_its_own_save_and_not_the_next(saved: Any) -> None:
    """A build that looked its keys up in the thread hung here: those of the next save were in their place."""
    side, home, told = saved
    kept = [2, 3, 4] if side == "torch" else [1, 2, 3]
    (first, _), (second, _) = told["late"]
    assert first == kept
    # process 1 has no part in the fourth save, and looks before it, after it, or before the oldest one is removed
    assert second in ([kept, [1, 2, 3], [1, 2, 3, 4]] if side == "torch" else [kept])
    assert all(left <= 8 for _, left in told["late"]), "values of saves before were removed"
    for step in kept:
        assert verify(home / "late" / "checkpoints" / str(step)).whole, "also what one process saved alone after that"


@pytest.mark.parametrize("saved", ["jax"], indirect=True)
def test_a_thread_that_ends_unforeseen_ends_the_save_in_all_and_no_later_one(saved: Any) -> None:
    _, home, told = saved
    (first, _), (second, _) = told["gave_up"]
    assert "step 1 could not be saved: process 1: " in first, first
    assert "no room for a message" in first, first
    assert "no room for a message" in second, second
    assert [steps for _, steps in told["gave_up"]] == [[2]] * 2
    assert verify(home / "gave-up" / "checkpoints" / "2").whole


@pytest.mark.soak
@pytest.mark.parametrize("side", SIDES)
def test_four_processes_save_and_restore_what_two_and_one_have(side: str, tmp_path: Path) -> None:
    run(side, tmp_path, "save", count=2)
    run(side, tmp_path, "restore", count=4)
    assert leaves(tmp_path / "state-4") == leaves(tmp_path / "state")
    (other := tmp_path / "other").mkdir()
    run(side, other, "save", count=4)
    run(side, other, "restore", count=2)
    run(side, other, "restore", count=1)
    for made in ("state", "state-1", "state-2"):
        assert leaves(other / made) == leaves(tmp_path / "state")


def test_whatever_reads_a_tree_of_one_process_reads_that_of_two(saved: Any, tmp_path: Path, capsys: Any) -> None:
    side, home, _ = saved
    state, run_ = home / "state", home / "run"
    for words in (["verify", state], ["verify", run_], ["inspect", state], ["compare", state, state, "--bytes"]):
        assert main([str(word) for word in words]) == 0, (words, capsys.readouterr())
    made, other = tmp_path / "made", {"torch": "torch.save", "jax": "orbax"}[side]
    assert main(["convert", str(state), str(made), "--to", other]) == 0, capsys.readouterr()
    capsys.readouterr()
    main(["compare", str(state), str(made)])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert {row.split(":")[0] for row in rows} <= {"  @items", "  @tree"}, "no array, no number"


REFUSED = {
    "a leaf more": r"plain\.more: nothing in process 0; 3 in process 1",
    "another number": r"plain\.n: 0 in process 0; 5 in process 1",
    "another container": r"the containers: \w+ in process 0; \w+ in process 1",
    "another value": r"plain\.a: int64\[5\] blocks \w+ in process 0; int64\[5\] blocks \w+ in process 1",
    "a leaf of no type": r"process 1: cannot be saved: 1 leaves are neither arrays nor scalars:\n  plain\.odd: ",
    "another folder": r"the directory: /\S+/never0 in process 0; /\S+/never1 in process 1",
    "another step": r"the step: 3 in process 0; 4 in process 1",
    "another metric": r"the metric: 2\.0 in process 0; 1\.0 in process 1",
    "another checkpoint": r"the checkpoint: /\S+/state in process 0; /\S+/run in process 1",
    "exists": r"process 0: /\S+/state exists already; it is not overwritten",
    "a store": r"several processes save to a directory that they all see",
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_processes_do_not_agree_on_is_refused_in_all_and_named(case: str, saved: Any) -> None:
    import re

    _, home, told = saved
    for said in told["refused"]:
        assert said[case].startswith("CheckpointError: "), said[case]
        assert re.search(REFUSED[case], said[case]), said[case]
    assert not list(home.glob("never*")), "nothing is left"


def test_a_full_disk_of_one_process_ends_the_save_in_all_and_names_it(saved: Any) -> None:
    _, home, told = saved
    for alone, managed, _ in told["full"]:
        assert "could not be saved: process 1: " in alone, alone
        assert "No space left on device" in alone, alone
        assert "step 1 could not be saved: process 1: " in managed, managed
    assert told["full"][0][2] == ["full-run/checkpoints"], "nothing is left"
    assert verify(home / "full").whole, "the next save to the same place is whole"
    assert not (home / "full-run" / "checkpoints" / "1").exists()
    assert verify(home / "full-run" / "checkpoints" / "2").whole


def test_what_one_process_reads_as_something_else_all_refuse(saved: Any) -> None:
    _, _, told = saved
    for said in told["misread"]:
        assert "is not what was sealed" in said or "are not one array" in said, said


def test_a_flipped_bit_is_refused_in_all(saved: Any) -> None:
    _, _, told = saved
    for said in told["damaged"]:
        assert said.startswith("DamagedError: process 0: "), said
        assert "rows" in said, said


@pytest.mark.parametrize("everyone", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("side", SIDES)
def test_a_process_that_is_killed_in_a_save_leaves_nothing_and_nobody_hangs(
    side: str, everyone: bool, tmp_path: Path
) -> None:
    if everyone:
        (tmp_path / "all").touch()
    ((first, second),) = run(side, tmp_path, "killed", codes=(0, 1, -9, -6))
    assert second is None, "it is gone"
    assert everyone or side == "jax" or "is gone" in first, first
    assert not (tmp_path / "killed").exists()
    if everyone:  # what was left is in nobody's way
        (tmp_path / "all").unlink()
        run(side, tmp_path, "save")
        assert verify(tmp_path / "state").whole


@pytest.mark.parametrize("saved", ["torch"], indirect=True)
def test_replicas_are_saved_by_all_where_that_is_asked_for_and_by_one_as_before(saved: Any) -> None:
    _, tmp_path, told = saved
    for step, split, apart in told["alike"]:
        assert step == 3
        assert "together=False has one act alone" in split, split
        assert "n: 0 in process 0; 1 in process 1" in apart, apart
    assert leaves(tmp_path / "alike") == leaves(tmp_path / "alike-alone")
    again = {f"state.{name}": text for name, text in leaves(tmp_path / "alike-again").items() if name[0] != "@"}
    assert again.items() <= leaves(tmp_path / "alike-run" / "checkpoints" / "3").items()
