"""Every file operation of a save, and of a whole run, fails in every way: `make soak`."""

import pytest

from tests.storage.disk import FAULTS, answers

pytestmark = pytest.mark.soak

LEAST_SAVES = {"jax": 150, "torch": 30}
LEAST_RUNS = {"jax": 30, "torch": 100}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_whatever_fails_in_a_save_older_checkpoints_stay_and_one_error_tells_it(fault, side):
    saves = answers("saving", side, "{}/run", f"{fault}:1:1")
    assert not [save for save in saves if save["wrong"]]
    assert sum(save["fired"] > 0 for save in saves) >= LEAST_SAVES[side]


@pytest.mark.parametrize("on_error", ["stop", "continue"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_run_that_lost_its_disk_ends_with_the_same_bits_on_a_sound_one(fault, on_error, side):
    stride = 1 if side == "torch" else 11
    runs = answers("driving", side, "{}", f"{fault}:*:1:{stride}:{on_error}")
    assert not [run for run in runs if run["wrong"]]
    assert sum(run["fired"] > 0 for run in runs) >= LEAST_RUNS[side]
