"""Ranks that a launcher starts: found, killed and judged as those that the check starts itself."""

import sys
from pathlib import Path

import pytest

import parity
from parity.checks.running.launched import place_told
from parity.errors import SpecError, TrainerError
from parity.results import Resumption
from tests.live import rank_trainers, ranks_ddp

HERE = str(Path(__file__).parent / "launcher.py")
OWN = (sys.executable, HERE, "{processes}")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "{processes}", "--standalone")


def check(fault: str, scenarios: str, launcher: tuple[str, ...] = OWN) -> Resumption:
    return parity.resumes(
        rank_trainers.train, steps=6, stop_at=4, processes=2, launcher=launcher, scenarios=scenarios,
        options={"fault": fault}, ignore={"exchange*": "messages"},
    )  # fmt: skip


def test_a_launcher_starts_the_ranks_and_one_alone_is_killed_too() -> None:
    found = check("", "kill,one-rank")
    assert found.verdict == "holds", found.text()
    assert found.scenarios == ("kill", "one-rank")


def test_what_a_rank_of_a_launcher_loses_is_named() -> None:
    found = check("no moments on rank 1", "kill")
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == "rank1:momentum", found.text()


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "verdict"), [("", "holds"), ("no moments on rank 1", "broken")])
def test_torchrun_starts_the_ranks(fault: str, verdict: str) -> None:
    found = check(fault, "kill", TORCHRUN)
    assert found.verdict == verdict, found.text()


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "verdict"), [("", "holds"), ("moments of rank 1", "broken")])
def test_torchrun_starts_ranks_of_distributed_data_parallel(fault: str, verdict: str) -> None:
    found = parity.resumes(
        ranks_ddp.train, steps=6, stop_at=4, processes=2, launcher=TORCHRUN, scenarios="kill",
        options={"fault": fault},
    )  # fmt: skip
    assert found.verdict == verdict, found.text()
    assert not fault or found.suspects[0].path.startswith("rank1:"), found.text()


@pytest.mark.parametrize("kind", ["slurm", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("ompi", "pmi"))])
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [pytest.param("", "holds", marks=pytest.mark.soak), ("no moments on rank 1", "broken")],
)
def test_ranks_are_found_by_the_variables_of_srun_and_mpirun(kind: str, fault: str, verdict: str) -> None:
    found = check(fault, "kill", (sys.executable, HERE, "--as", kind, "{processes}", sys.executable))
    assert found.verdict == verdict, found.text()
    assert not fault or found.suspects[0].path == "rank1:momentum", found.text()


@pytest.mark.parametrize(
    ("launcher", "processes", "message"),
    [
        ("torchrun", 2, "sequence of words"),
        ((), 2, "not empty"),
        (("no-such-launcher", "-n"), 2, "no program 'no-such-launcher'"),
        (OWN, 1, "at least 2, got 1"),
    ],
)
def test_a_launcher_that_cannot_be_used_is_refused(launcher: object, processes: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parity.resumes(rank_trainers.train, steps=6, processes=processes, launcher=launcher)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ((sys.executable, HERE, "3"), r"rank \d of 3, and 2 processes"),
        ((sys.executable, "-c", "raise SystemExit('no hosts')"), r"(?s)ended with 1.*missing: \[0, 1\].*no hosts"),
    ],
)
def test_a_launcher_that_starts_others_or_none_is_refused(launcher: tuple[str, ...], message: str) -> None:
    with pytest.raises(TrainerError, match=message):
        parity.resumes(rank_trainers.train, steps=6, processes=2, launcher=launcher)


def test_a_launcher_that_tells_no_rank_is_refused() -> None:
    with pytest.raises(TrainerError, match="none of RANK, OMPI_COMM_WORLD_RANK"):
        place_told({"RANK": "0"})
