"""250 random kills on each side: `make soak`, about a quarter of an hour on one core for each side."""

import pytest

from tests.storage.test_random_kills import kill_and_compare

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_killed_at_random_a_run_loses_nothing_and_never_diverges(side, seed, tmp_path):
    kill_and_compare(side, tmp_path, seed=seed, kills=50)
