"""A resume by another number of processes with DDP, FSDP2 with DCP, and JAX: clean, and with losses."""

from collections.abc import Callable
from typing import Any

import pytest

import parity
from parity.results import Resumption
from tests.live import elastic_jax, elastic_torch

pytestmark = pytest.mark.soak

TRAINERS: dict[str, Callable[..., Any]] = {
    "ddp": elastic_torch.replicated,
    "fsdp": elastic_torch.sharded,
    "jax": elastic_jax.train,
}
LOST = (
    ("ddp", "moments", 1, "optimizer"),
    ("ddp", "moments of the last rank", 4, "optimizer"),
    ("ddp", "samples not rescaled", 1, "counters"),
    ("fsdp", "moments of one rank", 4, "optimizer.first_moment"),
    ("fsdp", "a shard of the weights", 4, "model.params"),
    ("fsdp", "moments", 1, "optimizer"),
    ("jax", "a shard dropped", 1, "optimizer.momentum"),
    ("jax", "shards in another order", 4, "optimizer.momentum"),
    ("jax", "bias lost", 1, ("bias", "model.params")),
)
"""Trainer, what is lost, how many processes resume what two saved, and what the first suspect is of."""


def check(kind: str, after: int, fault: str = "", before: int = 2, **options: Any) -> Resumption:
    return parity.resumes(TRAINERS[kind], steps=7, stop_at=5, processes=before, resume_processes=after,
                          scenarios="other-count", options={"fault": fault, **options})  # fmt: skip


@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("kind", TRAINERS)
def test_a_clean_trainer_is_green(kind: str, after: int) -> None:
    found = check(kind, after)
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_uneven_parts_are_put_together(before: int, after: int) -> None:
    """7 rows: 4 and 3, and 2, 2, 2 and 1."""
    found = check("fsdp", after, before=before, wide=7)
    assert found.verdict == "holds", found.text()


def test_a_lost_part_of_uneven_ones_is_named_where_fewer_processes_resume() -> None:
    found = check("fsdp", 2, "moments of one rank", before=4, wide=7)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component == "optimizer.first_moment", found.text()


@pytest.mark.parametrize("kind", ["ddp", "jax"])
def test_two_processes_resume_what_four_have_saved(kind: str) -> None:
    found = check(kind, 2, before=4)
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize(("kind", "fault", "after", "named"), LOST)
def test_what_is_lost_is_named(kind: str, fault: str, after: int, named: str | tuple[str, ...]) -> None:
    found = check(kind, after, fault)
    assert found.verdict == "broken", found.text()
    assert found.suspects[0].component.startswith(named), found.text()
