"""Hyperparameters of a trainer and its port: which differ, and at which of their places that is shown."""

from types import SimpleNamespace
from typing import Any

from parity.capture import Leaf
from parity.checks.ports.basis import different_settings


def trained(rate: float) -> Any:
    paths = [f"optimizer.param_groups[{at}].lr" for at in range(9)]
    return SimpleNamespace(
        leaves={path: Leaf("state", "optimizer.hyperparameters", "float", repr(rate)) for path in reversed(paths)}
    )


def test_of_several_groups_the_first_is_shown_in_every_process() -> None:
    (found,) = different_settings(trained(0.1), trained(0.2))
    assert {"optimizer.param_groups[0].lr"} == {found.path, found.other}
    assert different_settings(trained(0.1), trained(0.1)) == []
