"""The resume check of a loop with FSDP2: its DTensors are seen, and how they are spread is no state."""

import pytest

import parity
from tests.live.sharded_trainer import train

pytestmark = pytest.mark.processes  # a process group belongs to a process, and none is wanted here


@pytest.mark.parametrize(
    ("fault", "component"),
    [("", ""), ("optimizer", "optimizer.step"), ("plain", "optimizer.first_moment")],
    ids=["clean", "optimizer", "plain"],
)
def test_a_sharded_loop(fault: str, component: str) -> None:
    found = parity.resumes(
        train, steps=20, stop_at=13, mode="process", scenarios="kill" if fault else "quick", options={"fault": fault}
    )
    assert found.verdict == ("broken" if fault else "holds"), found.text()
    assert not found.bookkeeping
    if fault:
        first = found.suspects[0]
        assert first.component == component, found.text()
        assert first.path.startswith("optimizer.state[model.0."), found.text()
