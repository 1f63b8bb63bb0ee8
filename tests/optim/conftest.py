"""Muon of torch with its iteration in the dtype of the parameters, as it can be compared in float64."""

import pytest
import torch


@pytest.fixture
def exact_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch's Muon iterate in the dtype of its parameters: it casts to bfloat16 by this one method."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone, raising=False)
