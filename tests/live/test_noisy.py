"""Trainers that part by rounding are judged by the envelope of equal runs; what parts by more is never a pass."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import parity
from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.judge import judge_same
from parity.checks.running.run import Mark
from parity.results import Resumption
from tests.live.noisy_jax import jax_loop
from tests.live.noisy_trainers import HIDDEN, LOOPS, LOST, STEPS, STOP, numpy_loop, torch_loop, unseeded


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def check(train: Callable[..., Iterator[int]], scenarios: str = "kill", **options: object) -> Resumption:
    return parity.resumes(train, steps=STEPS, stop_at=STOP, mode="inline", scenarios=scenarios, options=options)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_clean_trainer_holds_and_says_by_what(loop: str) -> None:
    found = check(LOOPS[loop], scenarios="again,third,first-save,extend" if loop == "numpy" else "kill")
    assert found.verdict == "holds", found.text()
    assert found.equal_runs == 5
    assert found.multiple is not None
    assert found.limit is not None
    assert 0.0 < found.multiple <= found.limit
    assert found.text().startswith("resumes within the envelope")
    assert "judged by the envelope of 5 equal runs, which part by rounding" in found.text()
    assert found.record().criterion == "envelope"
    assert found.record().envelope_multiple == found.multiple


@pytest.mark.parametrize(("fault", "named"), LOST.items())
def test_what_was_lost_is_named_bit_by_bit_where_it_was_restored(fault: str, named: str) -> None:
    found = check(torch_loop, fault=fault)
    assert found.verdict == "broken", found.text()
    assert (found.suspects[0].when, found.suspects[0].component[: len(named)]) == ("at the resume", named)


@pytest.mark.parametrize("fault", HIDDEN)
def test_what_no_state_shows_is_found_by_the_envelope(fault: str) -> None:
    found = check(torch_loop, fault=fault, ulps=64)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].when == "one step after the resume"
    assert "times" in found.suspects[0].got
    assert found.multiple is not None
    assert found.multiple > 30


@pytest.mark.parametrize("fault", ["moments_lost", "moments_late", "update_lost"])
def test_a_trainer_without_a_framework_is_judged_alike(fault: str) -> None:
    found = check(numpy_loop, fault=fault)
    assert found.verdict == "broken", found.text()
    assert found.components[0] == ("model.params" if fault == "update_lost" else "optimizer.momentum")


def test_a_trainer_in_jax_is_judged_alike_in_every_scenario() -> None:
    clean = check(jax_loop, scenarios="all")
    assert (clean.verdict, clean.equal_runs) == ("holds", 5), clean.text()
    found = check(jax_loop, fault="moments_late", ulps=64)
    assert (found.verdict, found.components[0]) == ("broken", "optimizer.first_moment"), found.text()


@pytest.mark.soak
@pytest.mark.processes
@pytest.mark.parametrize("loop", [torch_loop, numpy_loop, jax_loop], ids=["torch", "numpy", "jax"])
def test_a_trainer_is_judged_by_the_envelope_in_processes_too(loop: Callable[..., Iterator[int]]) -> None:
    for fault in ("", "moments_late"):
        found = parity.resumes(
            loop, steps=STEPS, stop_at=STOP, mode="process", scenarios="kill", options={"fault": fault, "ulps": 16}
        )
        assert found.verdict == ("broken" if fault else "holds"), found.text()
        assert found.equal_runs == 5


def marks(generator: str, drawn: str, *weights: str) -> list[Mark]:
    """Return the marks of a run: its generator at the first and at the later ones, and its weights."""
    found = []
    for step, weight in enumerate(weights):
        stream = Leaf("stream", "rng.torch", "Generator", drawn if step else generator)
        leaves = {"torch.default_generator": stream, "model.w": Leaf("state", "model.params", "float32[1]", weight)}
        found.append(Mark(step, StateSnapshot(leaves)))
    return found


@pytest.mark.parametrize(
    ("drawn", "weights", "cause"),
    [
        (("a", "b"), ("0", "1"), "model.w"),  # each process starts with another, and nothing draws from it
        (("c", "d"), ("0", "1"), "torch.default_generator"),  # it was drawn from
        (("a", "b"), ("1", "1"), "torch.default_generator"),  # the start was drawn from it
    ],
)
def test_a_generator_that_nobody_draws_from_is_no_cause(
    drawn: tuple[str, str], weights: tuple[str, str], cause: str
) -> None:
    one, other = marks("a", drawn[0], "0", "0", "2"), marks("b", drawn[1], *weights, "3")
    changing = {"model.w", *(["torch.default_generator"] if drawn[0] != "a" else [])}
    parted = judge_same(one, other, changing)
    assert parted is not None
    assert parted.path == cause


def test_an_order_that_nobody_seeded_is_no_rounding() -> None:
    found = check(unseeded)
    assert found.verdict == "inconclusive", found.text()
    assert "two equal runs differ by themselves: at step 1 " in found.notes[-1]


@pytest.mark.parametrize("fault", ["", "moments_late"])
def test_noise_that_would_hide_a_step_is_no_pass(fault: str) -> None:
    found = check(torch_loop, fault=fault, ulps=1 << 17)
    assert found.verdict == "inconclusive", found.text()
    assert "would hide the loss of a step" in found.notes[-1]


def test_a_number_that_no_rounding_moves_keeps_a_trainer_from_being_judged() -> None:
    def train(folder: Path) -> Iterator[int]:
        scheduler = {"last_epoch": np.zeros(3, np.int64)}
        for step in numpy_loop(folder):
            scheduler["last_epoch"] = np.random.default_rng().integers(0, 1 << 40, 3)
            (folder / "last").write_text(str(scheduler))
            yield step

    assert check(train).verdict == "inconclusive"
