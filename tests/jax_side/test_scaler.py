"""The loss scaler follows torch.amp.GradScaler through any row of overflows."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import torch_side.scaler
from jax_side.scaler import ScalerState, all_finite, build_scaler, unscale, update_scaler
from parity.spec import RunSpec, ScalerSpec
from tests.support.small import quick, small

Trajectory = list[tuple[float, int]]


def scaled_by(scaler: ScalerSpec) -> RunSpec:
    return replace(small("mlp-digits", "float16"), scaler=scaler)


def torch_trajectory(scaler: ScalerSpec, overflows: list[bool]) -> Trajectory:
    p = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.0)
    grad_scaler = torch_side.scaler.build_scaler(scaled_by(scaler), torch.device("cpu"))
    out = []
    for overflow in overflows:
        grad_scaler.scale(p.sum())
        p.grad = torch.tensor([1.0, torch.inf if overflow else 1.0])
        grad_scaler.step(optimizer)
        grad_scaler.update()
        state = grad_scaler.state_dict()
        out.append((state["scale"], state["_growth_tracker"]))
    return out


def jax_trajectory(scaler: ScalerSpec, overflows: list[bool]) -> Trajectory:
    state, out = build_scaler(scaled_by(scaler)), []
    assert state is not None
    for overflow in overflows:
        state = update_scaler(state, scaler, jnp.asarray(not overflow))
        out.append((float(state.scale), int(state.growth_tracker)))
    return out


@given(
    init=st.sampled_from([1.0, 1024.0, 65536.0, 3.7, 2.0**127]),
    growth=st.sampled_from([2.0, 4.0, 8.0]),
    backoff=st.sampled_from([0.5, 0.25, 0.125]),
    interval=st.integers(1, 5),
    overflows=st.lists(st.booleans(), min_size=1, max_size=25),
)
@example(init=1.0, growth=2.0, backoff=0.5, interval=2, overflows=[False, True, False, False, False, False])
@example(init=3.7, growth=4.0, backoff=0.25, interval=1, overflows=[False] * 20 + [True] * 5)
@quick(150)
def test_scale_and_tracker_follow_grad_scaler(
    init: float, growth: float, backoff: float, interval: int, overflows: list[bool]
) -> None:
    scaler = ScalerSpec(init_scale=init, growth_factor=growth, backoff_factor=backoff, growth_interval=interval)
    assert jax_trajectory(scaler, overflows) == torch_trajectory(scaler, overflows)


def test_the_scale_never_grows_to_infinity() -> None:
    scaler = ScalerSpec(init_scale=2.0**127, growth_interval=1)
    assert jax_trajectory(scaler, [False] * 3) == torch_trajectory(scaler, [False] * 3) == [(2.0**127, 0)] * 3


def test_the_state_keeps_its_types() -> None:
    scaler = ScalerSpec(init_scale=1024.0)
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            start = build_scaler(scaled_by(scaler))
            assert start is not None
            state = update_scaler(start, scaler, jnp.asarray(True))
            assert isinstance(state, ScalerState)
            assert (state.scale.dtype, state.growth_tracker.dtype) == (jnp.float32, jnp.int32)


@pytest.mark.parametrize("scale", [1024.0, 3.7, 0.1, 2.0**-20])
def test_unscaling_equals_grad_scaler_s(scale: float) -> None:
    gradients = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    p = torch.zeros(1000, requires_grad=True)
    optimizer, grad_scaler = torch.optim.SGD([p], lr=0.0), torch.amp.GradScaler("cpu", init_scale=scale)
    grad_scaler.scale(p.sum())
    p.grad = torch.tensor(gradients)
    grad_scaler.unscale_(optimizer)
    ours = np.array(unscale({"p": jnp.asarray(gradients)}, jnp.float32(scale))["p"])
    assert p.grad is not None
    np.testing.assert_array_equal(ours, p.grad.numpy())


@pytest.mark.parametrize(("value", "expected"), [(0.0, True), (np.inf, False), (-np.inf, False), (np.nan, False)])
def test_one_element_decides_whether_all_are_finite(value: float, expected: bool) -> None:
    grads = {"a": jnp.zeros(3), "b": jnp.zeros((2, 2)).at[1, 0].set(value)}
    assert bool(all_finite(grads)) is expected
