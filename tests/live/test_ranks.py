"""Trainers of several processes under the resume check: the state of every rank is compared, and one may be lost."""

import re
from pathlib import Path

import pytest

import parity
from parity.capture import Leaf, StateSnapshot
from parity.checks.running import Mark, Request, Trace
from parity.checks.running.inline import run_function
from parity.checks.running.rank import Rank
from parity.checks.running.ranks import merge_traces, of_rank
from parity.errors import SpecError, TrainerError
from parity.results import Resumption
from tests.live import rank_trainers

FAULTS = {
    "another rank's shard": r"rank\d:momentum",
    "equal streams": r"rank1:noise",
    "rank 0 alone restores": r"rank1:weights",
    "shards in another order": r"rank\d:momentum",
    "swapped streams": r"rank\d:noise",
    "streams begin anew": r"rank\d:noise",
    "no moments on rank 1": r"rank1:momentum",
    "scale of rank 1": r"rank1:scale",
    "last element dropped": r"rank1:momentum",
    "stale shard of rank 1": r"rank1:(momentum|before)",
    "sampler without its epoch": r"rank\d:(order|rows)",
}
"""What one rank, or each of them, loses at the resume, to the first suspect."""
SOON = 2
"""Of these so many are in the ordinary tests."""


def check(fault: str, scenarios: str = "kill") -> Resumption:
    return parity.resumes(
        rank_trainers.train, steps=8, stop_at=5, processes=2, scenarios=scenarios, options={"fault": fault},
        ignore={"exchange*": "messages"},
    )  # fmt: skip


def test_a_trainer_of_two_processes_resumes_exactly_also_when_one_alone_is_killed() -> None:
    found = check("", "kill,one-rank")
    assert found.verdict == "holds", found.text()
    assert found.scenarios == ("kill", "one-rank")


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.soak] * (at >= SOON)) for at, fault in enumerate(FAULTS)]
)
def test_what_one_rank_loses_is_named_with_its_rank(fault: str) -> None:
    found = check(fault)
    assert found.verdict == "broken", found.text()
    assert re.match(FAULTS[fault], found.suspects[0].path), found.text()


def test_ranks_that_part_are_observed_and_do_not_decide() -> None:
    found = check("one rank skips a step")
    assert found.verdict == "holds", found.text()
    seen = [one for one in found.observations if one.when == "otherwise than on rank 0"]
    assert [(one.path, one.step) for one in seen] == [("rank1:weights", 4), ("rank1:state.weights", 5)], seen


@pytest.mark.soak
def test_every_scenario_of_two_processes() -> None:
    found = check("", "all")
    assert found.verdict == "holds", found.text()
    assert {"kill", "again", "third", "one-rank", "first-save", "extend"} <= set(found.scenarios)


def test_ranks_that_do_not_mark_alike_are_refused() -> None:
    with pytest.raises(TrainerError, match="rank 1"):
        parity.resumes(rank_trainers.marks_too_little, steps=6, processes=2, scenarios="kill")


def test_a_rank_that_fails_is_named_and_the_others_end() -> None:
    with pytest.raises(TrainerError, match=r"(?s)rank 1.*no data on this rank"):
        parity.resumes(rank_trainers.fails_on_rank_1, steps=6, processes=2, scenarios="kill")


@pytest.mark.parametrize("processes", [0, -1, True, "2", 1.5])
def test_a_number_of_processes_that_is_none_is_refused(processes: object) -> None:
    with pytest.raises(SpecError, match="processes"):
        parity.resumes(rank_trainers.train, steps=6, processes=processes)  # type: ignore[arg-type]


def test_several_processes_are_not_run_within_this_one() -> None:
    with pytest.raises(SpecError, match="inline is one process"):
        parity.resumes(rank_trainers.train, steps=6, processes=2, mode="inline")


def test_one_rank_is_no_scenario_of_one_process(tmp_path: Path) -> None:
    found = parity.resumes(single, steps=6, mode="inline", scenarios=("kill", "one-rank"))
    assert found.closed["one-rank"] == "the function trains in one process"
    assert "one-rank" not in parity.resumes(single, steps=6, mode="inline", scenarios="all").closed


def single(folder: Path, steps: int):  # type: ignore[no-untyped-def]
    import numpy as np

    weights, start = np.ones(2), 0
    if (folder / "w.npz").exists():
        with np.load(folder / "w.npz") as state:
            weights, start = state["w"], int(state["step"])
    for step in range(start, steps):
        weights = weights * 0.9
        np.savez(folder / "w.npz", w=weights, step=step + 1)
        yield step + 1


class Alone:
    """A meeting that nobody else comes to."""

    def wait(self, timeout: float | None = None) -> int:
        return 0


@pytest.mark.parametrize(("number", "end"), [(0, "finished"), (1, "killed")])
def test_where_one_rank_is_killed_the_others_go_on(number: int, end: str, tmp_path: Path) -> None:
    rank = Rank(number=number, count=2, ports=(1, 2), meeting=Alone())
    request = Request(steps=6, kill_step=3, kill_rank=1, options={"steps": 6})
    assert run_function(single, tmp_path, request, rank=rank).end == end


def trace(*steps: int, path: str = "w", digest: str = "") -> Trace:
    leaves = {path: Leaf("array", path, "float64[2]", digest or "1"), "b": Leaf("alias", "b", "alias", path)}
    return Trace(marks=[Mark(step, StateSnapshot(dict(leaves), dead=frozenset({"x"}))) for step in steps],
                 end="finished")  # fmt: skip


def test_paths_components_and_aliases_have_their_rank() -> None:
    merged = merge_traces([trace(1, 2), trace(1, 2)])
    seen = merged.marks[1].snapshot
    assert set(seen.leaves) == {"rank0:w", "rank0:b", "rank1:w", "rank1:b"}
    assert seen.leaves["rank1:w"].component == "rank1:w"
    assert seen.leaves["rank1:b"].digest == "rank1:w"
    assert seen.is_dead("rank0:x.y")
    assert of_rank(["rank0:a", "rank10:a", "rank1:c"], 1) == ["c"]


def test_traces_of_other_steps_are_refused() -> None:
    with pytest.raises(TrainerError, match="every rank has to mark every step"):
        merge_traces([trace(1, 2), trace(1, 3)])
    with pytest.raises(TrainerError, match="every rank has to mark every step"):
        merge_traces([trace(1, 2), trace(1, 2, 3)])
