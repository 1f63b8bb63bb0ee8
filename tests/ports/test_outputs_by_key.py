"""Outputs in a dictionary are in the order of its keys; a count is no slot; complex leaves are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parity.checks.proving.walk import _counts
from parity.errors import SpecError
from torch_side.probes.calls import arrays_in
from torch_side.probes.model import open_model


def test_outputs_of_a_dictionary_are_in_the_order_of_its_keys() -> None:
    """As JAX has them, in whatever order it was filled."""
    filled = {"mu": torch.zeros(1), "logvar": torch.ones(2), "aux": {"z": torch.ones(4), "b": torch.ones(3)}}
    assert [one.numel() for one in arrays_in(filled)] == [3, 4, 2, 1]


def test_a_count_of_updates_is_told_from_a_moment_without_axes() -> None:
    """A parameter without axes has moments of the shape of the count."""
    assert _counts({"scale": np.array(3.0), "shift": np.array(3.0)}, 3)
    assert not _counts({"scale": np.array(3.0)}, 2)
    assert not _counts({"w": np.full(2, 3.0)}, 3)


def test_a_complex_parameter_is_refused_by_its_name() -> None:
    """Its imaginary part would be dropped."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2, dtype=torch.cfloat))

    with pytest.raises(SpecError, match="complex parameter, w"):
        open_model("--torch", "mine:Model", Model, (), {}, ())
