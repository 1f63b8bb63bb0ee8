"""Every file operation of a save fails, once and from then on: no older checkpoint is lost, one clear error.

What SQLite's tests do for a database: fail operation 1, then 2, and so on until the save completes. Operations are
counted below Python, over all threads, so TensorStore's own are among them.
"""

import pytest

from tests.storage.disk import FAULTS, answers

pytestmark = pytest.mark.processes

CASES = [
    ("torch", [f"{fault}:1:1" for fault in FAULTS], 400),
    ("jax", ["full:1:2", "failing-once:2:2", "unreadable-once:5:100"], 100),
    ("jax", ["failing:1:2", "full-once:2:2", "read-only:7:60"], 100),
]
"""Side, orders, and the fewest failures. PyTorch: every operation, in every way. JAX: every one that changes a thing,
in two ways; tests/soak has the rest."""


def judge(side: str, saves: list[dict], least: int) -> None:
    """Check every save, and that the disk did fail."""
    fired = [save for save in saves if save["fired"]]
    faults = [(save["fault"], save["n"], save["operation"], save["wrong"]) for save in saves if save["wrong"]]
    assert not faults, f"{len(faults)} of {len(saves)}, the first: {faults[:5]}"
    assert len(fired) >= least
    kinds = {save["operation"].split()[0] for save in fired}
    assert kinds >= {"mkdir", "open", "write", "fsync", "rename", "unlink", "rmdir"}
    below_python = [save for save in fired if "/d/" in save["operation"]]
    assert bool(below_python) == (side == "jax")
    tolerated = {save["operation"].split()[0] for save in fired if not save["errors"]}
    assert not tolerated & {"mkdir", "write", "fsync", "rename", "truncate"}, tolerated


@pytest.mark.parametrize(("side", "orders", "least"), CASES)
def test_whatever_fails_in_a_save_older_checkpoints_stay_and_one_error_tells_it(side, orders, least):
    judge(side, answers("saving", side, "{}/run", *orders), least)
