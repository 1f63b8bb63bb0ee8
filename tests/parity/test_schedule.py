"""The schedule is PyTorch's own up to the horizon, and stays at its end value beyond it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler

from parity.spec import ScheduleSpec
from parity.twins import factor, rates
from tests.support.small import quick

PEAK = 3e-3


def torch_rates(make: type[LRScheduler], steps: int, **options: float) -> list[float]:
    """Return the rates that a scheduler of PyTorch gives the first steps, in its usual call order."""
    optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], lr=PEAK)
    scheduler = make(optimizer, **options)
    out = []
    for _ in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return out


@pytest.mark.parametrize("final", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("horizon", [1, 7, 300])
def test_cosine_equals_torch_up_to_the_horizon(horizon: int, final: float) -> None:
    schedule = ScheduleSpec(kind="cosine", horizon=horizon, final=final)
    expected = torch_rates(CosineAnnealingLR, horizon + 1, T_max=horizon, eta_min=PEAK * final)
    np.testing.assert_allclose(rates(schedule, PEAK, 0, horizon + 1), expected, rtol=1e-12, atol=PEAK * 1e-12)


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("horizon", [1, 7, 300])
def test_linear_equals_torch_up_to_and_beyond_the_horizon(horizon: int, final: float) -> None:
    schedule = ScheduleSpec(kind="linear", horizon=horizon, final=final)
    options = {"start_factor": 1.0, "end_factor": final, "total_iters": horizon}
    expected = torch_rates(LinearLR, horizon + 10, **options)
    np.testing.assert_allclose(rates(schedule, PEAK, 0, horizon + 10), expected, rtol=1e-12, atol=PEAK * 1e-12)


@pytest.mark.parametrize("warmup", [1, 20])
def test_warm_up_equals_torch(warmup: int) -> None:
    schedule = ScheduleSpec(kind="constant", warmup=warmup)
    options = {"start_factor": 1 / (warmup + 1), "end_factor": 1.0, "total_iters": warmup}
    expected = torch_rates(LinearLR, warmup + 5, **options)
    np.testing.assert_allclose(rates(schedule, PEAK, 0, warmup + 5), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_shape_begins_at_the_peak_when_the_warm_up_ends(kind: str) -> None:
    warm = ScheduleSpec(kind=kind, warmup=10, horizon=110, final=0.1)  # type: ignore[arg-type]
    cold = ScheduleSpec(kind=kind, horizon=100, final=0.1)  # type: ignore[arg-type]
    assert factor(warm, 9) == 10 / 11
    assert [factor(warm, 10 + s) for s in range(150)] == [factor(cold, s) for s in range(150)]
    assert factor(cold, 0) == 1.0


@pytest.mark.parametrize(("kind", "end"), [("constant", 1.0), ("linear", 0.25), ("cosine", 0.25)])
def test_the_rate_stays_at_its_end_value_beyond_the_horizon(kind: str, end: float) -> None:
    """CosineAnnealingLR rises again after T_max; a run that goes on must not."""
    schedule = ScheduleSpec(kind=kind, horizon=50, final=0.25)  # type: ignore[arg-type]
    assert [factor(schedule, step) for step in (50, 51, 75, 100, 10**9)] == [end] * 5


def test_torch_rises_again_after_t_max() -> None:
    expected = torch_rates(CosineAnnealingLR, 101, T_max=50, eta_min=0.0)
    assert expected[100] == pytest.approx(PEAK)
    assert factor(ScheduleSpec(horizon=50), 100) == 0.0


@given(
    kind=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.integers(0, 50),
    length=st.integers(1, 500),
    final=st.floats(0, 1),
    first=st.integers(0, 600),
    n=st.integers(0, 20),
)
@quick(100)
def test_rates_are_factors_in_the_unit_interval_wherever_they_start(
    kind: str, warmup: int, length: int, final: float, first: int, n: int
) -> None:
    schedule = ScheduleSpec(kind=kind, warmup=warmup, horizon=warmup + length, final=final)  # type: ignore[arg-type]
    out = rates(schedule, PEAK, first, n)
    assert out.dtype == np.float64
    assert out.tolist() == [PEAK * factor(schedule, first + i) for i in range(n)]
    assert all(0.0 <= factor(schedule, first + i) <= 1.0 for i in range(n))
