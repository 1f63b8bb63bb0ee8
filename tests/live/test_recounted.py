"""A resume by another number of processes: what is put together, what follows the number, what is lost."""

from typing import Any

import numpy as np
import pytest

import parity
from parity.capture import Extent, Leaf, StateSnapshot, digest_of
from parity.checks.judging import Kill, Outcome, Uninterrupted, judge_later, judge_recounted, named, recount
from parity.checks.judging.ranks import gathered
from parity.checks.running import Mark, Trace
from parity.errors import SpecError
from parity.results import Resumption
from tests.live import elastic_inner, elastic_trainers

STEPS = range(6)


def array(
    value: np.ndarray, *, shape: tuple[int, ...] = (), low: int = 0, role: str = "state"
) -> tuple[Leaf, object]:
    """Return a leaf of rows of a whole array, or of all of one where no shape is given, with its values."""
    box = ((low, low + len(value)), *((0, size) for size in shape[1:]))
    extent = Extent(shape, (box,)) if shape else None
    kind = f"float64[{'x'.join(map(str, value.shape))}]"
    return Leaf("state", "optimizer.first_moment", kind, digest_of(value.tobytes()), "", extent), value


def number(value: int) -> tuple[Leaf, object]:
    return Leaf("scalar", "counters.step", "int", str(value)), value


def weights(step: int) -> np.ndarray:
    return np.arange(8.0).reshape(4, 2) * 0.9**step


def state(step: int, count: int, *, seen: int | None = None, noise: float = 0.0) -> dict[str, tuple[Leaf, object]]:
    """Return what processes hold: rows of a moment, a replica of a scale, their own number, samples of one."""
    found: dict[str, tuple[Leaf, object]] = {}
    whole = weights(step) * (1 + noise)
    each = -(-4 // count)
    for rank in range(count):
        low = min(rank * each, 4)
        part = whole[low : low + each]
        found[f"rank{rank}:moment"] = array(part, shape=(4, 2), low=low)
        found[f"rank{rank}:scale"] = array(np.array([1.0 + step]))
        found[f"rank{rank}:own"] = number(rank + step)
        found[f"rank{rank}:seen"] = number(step * 12 // count if seen is None else seen)
    return found


def mark(step: int, held: dict[str, tuple[Leaf, object]]) -> Mark:
    leaves = {path: leaf for path, (leaf, _) in held.items()}
    values = {path: value for path, (_, value) in held.items()}
    return Mark(step, StateSnapshot(leaves, values=values), saved=(f"s-{step}",) if step else ())


def run(count: int, start: int = 0, noise: float = 0.0) -> Trace:
    return Trace(marks=[mark(step, state(step, count, noise=noise * (step > 0))) for step in STEPS if step >= start],
                 end="finished")  # fmt: skip


def known(saved: Trace) -> Uninterrupted:
    return Uninterrupted(noise=frozenset(), changing=frozenset(saved.marks[0].snapshot.leaves), histories=())


def judged(resumed: Trace, before: int = 2, after: int = 3) -> Outcome:
    saved, afresh = run(before), run(after, noise=1e-15)
    runs = recount(saved, afresh, resumed, (before, after))
    out = judge_recounted(runs, known(saved), Kill(mark=4))
    if not out.broken and not runs.anew:
        judge_later(runs, known(saved), out)
    return named(out, runs)


def change(resumed: Trace, *, at: int = 0, **leaves: tuple[Leaf, object]) -> Trace:
    held = {path: (leaf, resumed.marks[at].snapshot.values.get(path))
            for path, leaf in resumed.marks[at].snapshot.leaves.items()}  # fmt: skip
    held |= {path.replace("_", ":"): leaf for path, leaf in leaves.items()}
    resumed.marks[at] = mark(resumed.marks[at].step, held)
    return resumed


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (1, 4), (4, 2), (3, 5)])
def test_parts_are_the_same_whole_in_any_number_of_processes(before: int, after: int) -> None:
    out = judged(run(after, start=3, noise=0.0), before, after)
    assert (out.broken, out.unsure) == ([], False)
    wholes = {gathered(run(count), count, {"moment"}).trace.marks[2].snapshot.leaves["rank0:moment"]
              for count in (1, 2, 3, 4, 5)}  # fmt: skip
    assert len(wholes) == 1


def test_a_part_that_no_process_has_is_named() -> None:
    resumed = run(3, start=3)
    for name in ("leaves", "values"):
        getattr(resumed.marks[0].snapshot, name).pop("rank1:moment")
    out = judged(resumed)
    assert [(e.path, e.got) for e in out.broken][:1] == [("moment", "4 of 8 elements in no process")]


def test_a_part_of_one_process_that_is_lost_is_named() -> None:
    zeros = array(np.zeros((2, 2)), shape=(4, 2), low=2)
    out = judged(change(run(2, start=3), rank1_moment=zeros), before=3, after=2)
    assert [e.path for e in out.broken][:1] == ["moment"]


def test_replicas_of_a_part_that_differ_are_named() -> None:
    other = array(weights(3)[:2] + 1.0, shape=(4, 2))
    out = judged(change(run(3, start=3), rank2_moment=other))
    assert "rank 2 holds other elements" in out.broken[0].got


def test_a_replica_that_one_rank_alone_lost_is_named_with_the_rank() -> None:
    resumed = run(3, start=3)
    for at in range(len(resumed.marks)):
        change(resumed, at=at, rank2_scale=array(np.array([0.5])))
    out = judged(resumed)
    assert [e.path for e in out.broken][:1] == ["rank2:scale"]


def test_what_every_rank_has_of_its_own_is_listed_and_never_judged() -> None:
    saved, afresh = run(2), run(3)
    assert recount(saved, afresh, run(3, start=3), (2, 3)).own == {"own"}
    assert judged(change(run(3, start=3), rank1_own=number(77))).broken == []


def test_a_count_of_one_process_follows_their_number() -> None:
    """6 samples a step of each of 2 processes, 4 of each of 3: after 3 steps 18, and 12."""
    out = judged(run(3, start=3))
    assert (out.broken, out.bookkeeping) == ([], [])


def test_a_count_that_was_not_rescaled_is_named_where_training_shows_it() -> None:
    resumed = run(3, start=3)
    for at, one in enumerate(resumed.marks):
        held = {f"rank{rank}_seen": number(18 + at * 4) for rank in range(3)}
        off = {} if not at else {
            f"rank{rank}_moment": array(weights(one.step)[2 * rank : 2 * rank + 2] * 1.01, shape=(4, 2), low=2 * rank)
            for rank in range(2)
        }  # fmt: skip
        change(resumed, at=at, **held, **off)
    out = judged(resumed)
    assert [(e.path, e.expected, e.got, e.when) for e in out.broken][:1] == [
        ("seen", "12", "18", "as 2 processes saved it")
    ]
    assert out.broken[1].path == "moment"


def test_a_count_as_it_was_saved_is_no_loss_where_training_goes_on_alike() -> None:
    resumed = run(3, start=3)
    for at, _ in enumerate(resumed.marks):
        change(resumed, at=at, **{f"rank{rank}_seen": number(18 + at * 4) for rank in range(3)})
    out = judged(resumed)
    assert (out.broken, out.unsure) == ([], False)


def test_what_trains_otherwise_in_another_number_is_compared_at_the_resume_alone() -> None:
    saved, afresh = run(2), run(3, noise=0.3)
    resumed = run(3, start=3)
    change(resumed, at=1, rank0_moment=array(np.ones((2, 2)), shape=(4, 2)))
    runs = recount(saved, afresh, resumed, (2, 3))
    out = judge_recounted(runs, known(saved), Kill(mark=4))
    judge_later(runs, known(saved), out)
    assert (out.broken, out.unsure) == ([], False)
    assert "what follows the resume is not compared: runs of 2 and 3 processes" in out.notes[0]


def test_a_run_that_begins_anew_resumed_nothing() -> None:
    assert [e.component for e in judged(run(3)).broken] == ["checkpoint.latest"]


def test_the_state_before_the_first_step_is_taken_where_marks_end_a_step() -> None:
    saved, afresh = run(2), run(3, noise=1e-15)
    for trace in (saved, afresh):
        trace.loop = object()  # type: ignore[assignment]
    resumed = run(3, start=4, noise=1e-15)
    runs = recount(saved, afresh, resumed, (2, 3))
    assert judge_recounted(runs, known(saved), Kill(mark=4)).unsure  # it was not seen
    resumed.entry = mark(0, state(3, 3)).snapshot
    whole = recount(saved, afresh, resumed, (2, 3))
    assert judge_recounted(whole, known(saved), Kill(mark=4)).broken == []
    zeros = array(np.zeros((2, 2)), shape=(4, 2))
    resumed.entry = mark(0, {**state(3, 3), "rank0:moment": zeros}).snapshot
    lost = recount(saved, afresh, resumed, (2, 3))
    assert [e.path for e in judge_recounted(lost, known(saved), Kill(mark=4)).broken] == ["rank0:moment"]


def check(
    fault: str, before: int = 2, after: int = 1, train: Any = elastic_trainers.train, **options: object
) -> Resumption:
    return parity.resumes(train, steps=9, stop_at=5, processes=before, resume_processes=after,
                          scenarios="other-count", options={"fault": fault, **options})  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [(2, 1), *(pytest.param(*counts, marks=pytest.mark.soak) for counts in ((2, 4), (1, 2), (4, 2)))],
)
def test_a_clean_trainer_resumes_in_another_number_of_processes(before: int, after: int) -> None:
    found = check("", before, after)
    assert found.verdict == "holds", found.text()
    assert found.scenarios == ("other-count",)
    assert not any(one.path.startswith("report") for one in found.bookkeeping), found.text()


def test_a_file_at_the_end_that_runs_of_both_numbers_have_alike_is_listed_where_it_differs() -> None:
    """The number of processes and the weights, which rounding moves, are not: those runs have them otherwise."""
    found = check("a count in the report")
    assert found.verdict == "holds", found.text()
    (listed,) = (one for one in found.bookkeeping if one.path.startswith("report"))
    assert (listed.path, listed.expected) == ("report.json: steps", "9")
    assert int(listed.got) < 9


LOST = {
    "samples not rescaled": ("seen", 1),
    "a shard dropped": ("momentum", 1),
    "position lost": ("seen", 1),
    "begins anew": ("mark", 1),
    "fails later": ("function", 1),
    "moments of the last rank": ("rank3:momentum", 4),
    "weights of the last rank": ("rank3:weights", 4),
}
"""What is lost, to the first suspect and the number of processes that resume what two saved."""
SOON = 1
"""Of these so many are in the ordinary tests."""


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.soak] * (at >= SOON)) for at, fault in enumerate(LOST)]
)
def test_what_another_number_of_processes_loses_is_named(fault: str) -> None:
    path, after = LOST[fault]
    found = check(fault, 2, after)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].path == path, found.text()


def test_a_function_that_refuses_another_number_is_inconclusive_with_its_own_message() -> None:
    found = check("refuses")
    assert found.verdict == "inconclusive", found.text()
    assert found.notes == (
        "what 2 processes saved was not resumed by 1 process: ValueError: saved by 2 processes, started with 1",
    )


@pytest.mark.soak
@pytest.mark.parametrize("after", [1, 4])
def test_marks_may_be_made_in_an_inner_function(after: int) -> None:
    assert (found := check("", 2, after, elastic_inner.train)).verdict == "holds", found.text()
    for fault, path in {"a shard dropped": "momentum", "samples not rescaled": "train().seen"}.items():
        found = check(fault, 2, after, elastic_inner.train)
        assert found.verdict == "broken", found.text()
        assert found.suspects[0].path == path, found.text()


@pytest.mark.soak
def test_a_batch_for_each_process_is_compared_at_the_resume_alone() -> None:
    found = check("position lost", each=6)
    assert found.verdict == "inconclusive", found.text()
    assert "what follows the resume is not compared" in found.text()


@pytest.mark.parametrize("number", [0, -1, True, "2", 1.5, 2])
def test_what_is_no_other_number_of_processes_is_refused(number: object) -> None:
    with pytest.raises(SpecError, match="resume_processes"):
        parity.resumes(elastic_trainers.train, steps=6, processes=2, resume_processes=number)  # type: ignore[arg-type]


def test_another_number_is_not_resumed_within_this_process_or_by_a_launcher_that_is_not_told_it() -> None:
    with pytest.raises(SpecError, match="inline is one process, got resume_processes=2"):
        parity.resumes(elastic_trainers.train, steps=6, resume_processes=2, mode="inline")
    with pytest.raises(SpecError, match="has to be told the number"):
        parity.resumes(elastic_trainers.train, steps=6, processes=2, resume_processes=4, launcher=("env", "-n2"))
