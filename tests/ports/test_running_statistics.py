"""Buffers that a normalisation is called with are running statistics, whatever they are called; others are not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from parity import map_models
from torch_side.probes.statistics import statistics_of


class Normed(nn.Module):
    """A batch norm that a user wrote, its buffers under names of their own, beside one that nothing normalises by."""

    def __init__(self, how="function"):
        super().__init__()
        self.how = how
        self.scale, self.shift = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
        for name in ("m", "v", "table"):
            self.register_buffer(name, torch.ones(3))

    def forward(self, x):
        x = x * self.table
        if self.how == "names":
            return functional.batch_norm(
                x, running_var=self.v, running_mean=self.m, weight=self.scale, bias=self.shift, eps=1e-5
            )
        if self.how == "operation":
            return torch.batch_norm(x, self.scale, self.shift, self.m, self.v, False, 0.1, 1e-5, False)
        return functional.batch_norm(x, self.m, self.v, self.scale, self.shift, eps=1e-5)


class Model(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(2, 3), norm, nn.Linear(3, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


@pytest.mark.parametrize("how", ["function", "names", "operation"])
def test_a_batch_norm_of_ones_own_is_that_of_pytorch(how):
    found = map_models(torch=[lambda: Model(nn.BatchNorm1d(3)), lambda: Model(Normed(how))], inputs="f[5,2]")
    assert found.verdict == "holds", found.text()
    rows = {row.first[0]: row.second[0] for row in found.found.rows}
    assert rows["norm.running_mean"] == "norm.m"
    assert rows["norm.running_var"] == "norm.v"
    assert not any("table" in name for row in found.found.rows for name in row.second)


@pytest.mark.parametrize("fault", [{"eps": 1e-3}, {"swapped": True}])
def test_a_batch_norm_of_ones_own_that_does_something_else_is_broken(fault):
    class Other(Normed):
        def forward(self, x):
            m, v = (self.v, self.m) if "swapped" in fault else (self.m, self.v)
            x = functional.batch_norm(x, m, v, self.scale, self.shift, eps=fault.get("eps", 1e-5))
            return x + 0.1 * self.v if "swapped" in fault else x

    found = map_models(torch=[lambda: Model(nn.BatchNorm1d(3)), lambda: Model(Other())], inputs="f[5,2]")
    assert found.verdict == "broken"


def test_what_cannot_be_called_has_the_statistics_that_names_tell():
    def fails():
        raise RuntimeError

    assert statistics_of(Model(nn.BatchNorm1d(3)), fails) == {"norm.running_mean", "norm.running_var"}
    assert statistics_of(Model(Normed())) == frozenset()
