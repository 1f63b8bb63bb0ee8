"""PyTorch's flags move a loss by rounding at most, but for the one that the table of optimizers names."""

import numpy as np
import pytest

from parity.checks.translating import least_squares
from parity.state import OPTIMIZERS
from parity.state.optimizer_kinds import FLAGS
from tests.docs.pages import read, words
from torch_side.optim import losses

HERE = ("foreach", "fused")
"""Flags that PyTorch takes on a CPU in a loop of plain updates."""

CASES = [(name, flag) for name, kind in OPTIMIZERS.items() if kind.in_torch for flag in kind.flags if flag in HERE]


@pytest.mark.parametrize(("name", "flag"), CASES)
def test_a_flag_moves_a_loss_by_rounding_or_is_named(name: str, flag: str) -> None:
    without, given = (losses(name, {"lr": 0.01, **one}, least_squares(), 400) for one in ({}, {flag: True}))
    apart = (np.abs(given - without) / without).max()
    if flag in OPTIMIZERS[name].inexact:
        assert 1e-9 < apart < 1e-7
    else:
        assert apart < 1e-14


def test_the_page_names_the_flags_and_the_exception() -> None:
    text = words(read("docs/compositions.md").split("## Flags")[1])
    assert all(f"`{flag}`" in text for flag in FLAGS)
    (name,) = [name for name, kind in OPTIMIZERS.items() if kind.inexact]
    (flag,) = OPTIMIZERS[name].inexact
    assert f"`{name}` with `{flag}=True`" in text
