"""SIGKILL at random moments of starting, training and saving: nothing is lost, and nothing diverges."""

import pytest

from tests.storage.killing import Chain

pytestmark = pytest.mark.processes

KILLS = 20
BEGINS = ("record", "record", "lock", "record", "start")


def kill_and_compare(side, home, seed, kills):
    """Kill one run many times, then compare it with one that was never killed."""
    chain = Chain(side, home, seed)
    for number in range(kills):
        chain.kill_once(BEGINS[number % len(BEGINS)])
    killed, whole = chain.finish()
    assert not chain.lost, chain.describe()
    assert killed.curve == whole.curve
    assert killed.leaves == whole.leaves
    assert chain.starts >= kills * 4 // 5, "too few kills hit a process that trains"
    assert len(whole.curve) > kills // 4, "under load a process trains little before it is killed, but it trains"
    assert chain.inside >= kills // 20, "too few kills hit a save"


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_killed_at_random_a_run_loses_nothing_and_never_diverges(side, tmp_path):
    kill_and_compare(side, tmp_path, seed=0, kills=KILLS)
