"""A disk that is full, read-only or failing, at any operation of a save of a tree: one error, nothing half there."""

import pytest

from tests.storage.disk import answers

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("side", "stride"), [("torch", 5), pytest.param("jax", 3, marks=pytest.mark.soak)], ids=["torch", "jax"]
)
def test_a_disk_that_fails_is_one_error_and_leaves_nothing_half(side: str, stride: int) -> None:
    found = answers("trees", side, "{}", str(stride))
    wrong = [f"{one['what']}: {text}" for one in found for text in one["wrong"]]
    assert wrong == []
    fired = [one for one in found if one["fired"]]
    assert len(fired) > 20
    assert sum(bool(one["errors"]) for one in fired) > 0.8 * len(fired)
