"""The loops of a port, in PyTorch, NNX and plain Optax: each resumes, runs go over both ways, losses are named."""

from functools import partial

import pytest

import parity
from parity.checks.ports import hands_over
from parity.checks.proving.opened import sources_of
from parity.checks.proving.trained import handover_stage, resume_stage
from tests.ports import loops

SIDES = {"torch": loops.TORCH, "nnx": loops.NNX, "optax": loops.OPTAX}

WAYS = {("torch", "optax"): loops.to_optax, ("torch", "nnx"): loops.to_nnx,
        ("optax", "torch"): loops.from_optax, ("nnx", "torch"): loops.from_nnx}  # fmt: skip

LOST = {"exp_avg": "optimizer.first_moment", "exp_avg_sq": "optimizer.second_moment", "count": "optimizer.step",
        "schedule": "schedule.step"}  # fmt: skip

LOOPS = {"torch": loops.torch_loop, "nnx": loops.nnx_loop, "optax": loops.optax_loop}


def resumed(torch, jax):
    return resume_stage(*sources_of({"torch": (torch, ()), "jax": (jax, ())}, {}))


@pytest.mark.parametrize("jax", [pytest.param("nnx", marks=pytest.mark.soak), "optax"])
def test_the_loops_of_both_resume_exactly(jax):
    found = resumed(SIDES["torch"], SIDES[jax])
    assert found.verdict == "holds", found
    assert "jax in 3 scenarios" in found.said


@pytest.mark.parametrize(
    ("side", "lost", "said"),
    [
        ("torch", "scheduler", "torch does not resume exactly: schedule.step, state.scheduler.last_epoch"),
        ("torch", "optimizer", "torch does not resume exactly: optimizer.step"),
        ("nnx", "optimizer", "jax does not resume exactly: schedule.step, state.optimizer.opt_state[1][2].count"),
        ("optax", "opt_state", "jax does not resume exactly: schedule.step, state.opt_state[1][2].count"),
        ("optax", "params", "jax does not resume exactly: model.params"),
    ],
)
def test_what_a_loop_of_either_side_does_not_save_is_named(side, lost, said):
    other = "optax" if side == "torch" else side
    made = {**SIDES, side: SIDES[side] | {"train": LOOPS[side](lost)}}
    found = resumed(made["torch"], made[other])
    assert (found.name, found.verdict) == ("resume", "broken")
    assert said in found.cause, found


def handed(way, lost="", back=None):
    source, target = way
    return hands_over(SIDES[source]["train"], SIDES[target]["train"], convert=partial(WAYS[way], lost=lost),
                      back=back, steps=12, mode="inline", seeds=1 if lost else None)  # fmt: skip


@pytest.mark.parametrize("way", [("torch", "nnx"), pytest.param(("nnx", "torch"), marks=pytest.mark.soak)], ids=str)
def test_a_run_goes_over_in_either_direction_and_back(way):
    found = handed(way, back=WAYS[way[1], way[0]])
    assert (found.verdict, found.handovers, found.pairs) == ("holds", (6, 9), 18), found.text()


def test_rounding_where_the_noise_of_the_first_cannot_be_measured_is_never_red():
    """Parameters of plain Optax cannot be moved, and its bias correction in float32 is beyond PyTorch's own noise."""
    found = handed(("optax", "torch"), back=WAYS["torch", "optax"])
    assert found.verdict in ("holds", "inconclusive"), found.text()
    if found.verdict == "inconclusive":
        assert "compare in float64" in found.text()


FIRST = {("torch", "nnx"): ("exp_avg", "schedule"), ("optax", "torch"): ("exp_avg_sq", "count", "schedule")}
"""What is looked at in each run of the tests; the rest waits for `make soak`."""

CASES = [
    pytest.param(way, lost, id="-".join((*way, lost)), marks=[] if lost in FIRST.get(way, ()) else pytest.mark.soak)
    for way in WAYS
    for lost in LOST
]


@pytest.mark.parametrize(("way", "lost"), CASES)
def test_what_a_conversion_drops_is_named_in_either_direction(way, lost):
    found = handed(way, lost)
    assert (found.verdict, found.components[0]) == ("broken", LOST[lost]), found.text()


def test_a_port_is_proven_from_the_interface_to_a_handover_there_and_back():
    found = parity.prove_port(torch=loops.TORCH, jax=loops.NNX, steps=12, convert=loops.to_nnx, back=loops.from_nnx)
    assert found.verdict == "holds", found.text()
    assert [one.verdict for one in found.stages] == ["holds"] * 10
    assert "at steps 6 and 9 of 12" in found.text()


def test_a_conversion_back_that_loses_something_is_told_in_a_port():
    both = sources_of({"torch": (loops.TORCH, ()), "jax": (loops.NNX, ())}, {})
    found = handover_stage(*both, None, partial(loops.from_nnx, lost="exp_avg"))
    assert (found.verdict, found.cause.partition(",")[0]) == ("broken", "optimizer.first_moment"), found
    assert "--back" in handover_stage(*both, None, None).said
