"""Where a difference hides: odd gradients, shapes, dtypes, steps; a row each, every optimizer against torch.optim."""

from functools import cache, partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import jax_side.optim
import torch_side.optim
from jax_side.optim import by_name
from jax_side.scaler import all_finite
from tests.optim.test_exact import EDGES
from tests.optim.walks import IN_TORCH, QUICK, torch_optimizer

STEPS = 8
OVERFLOWS = (0, 4)
"""Steps at which one gradient is infinite: none of them is applied, also not the very first."""

ROWS = {
    "plain": (3, 2),
    "zero gradients": (3, 2),
    "unfrozen late": (2, 3),
    "frozen for some steps": (2, 3),
    "never used": (2, 2),
    "one element": (1,),
    "no dimension": (),
    "empty": (0, 3),
    "of another dtype": (3, 2),
}
"""Parameter to its shape; Muon has matrices in their place."""

ABSENT = {"unfrozen late": (0, 1, 2), "frozen for some steps": (2, 3, 5), "never used": range(STEPS)}
"""Steps at which a parameter has no gradient."""

ZERO = (1, 2, 5)
"""Steps at which that of `zero gradients` is zero, its first one included."""


def shape_of(name, row):
    shape = ROWS[row]
    return shape if name != "Muon" or len(shape) == 2 else (1, 1)


def rows_of(name):
    """Return the rows of an optimizer: torch's Adafactor divides by the number of elements."""
    return [row for row in ROWS if not (name == "Adafactor" and row == "empty")]


def dtype_of(row):
    return np.float32 if row == "of another dtype" else np.float64


def gradient(name, row, step):
    """Return a drawn gradient, None where there is none."""
    if step in ABSENT.get(row, ()):
        return None
    generator = np.random.default_rng([step, *row.encode()])
    drawn = generator.normal(size=shape_of(name, row)).astype(dtype_of(row))
    if row == "plain" and step in OVERFLOWS:
        drawn[0, 0] = np.inf
    return np.zeros_like(drawn) if row == "zero gradients" and step in ZERO else drawn


def begin(name):
    """Return drawn parameters, some of them -0.0, which a step that is skipped must leave so."""
    generator = np.random.default_rng(3)
    drawn = {row: generator.normal(size=shape_of(name, row)).astype(dtype_of(row)) for row in rows_of(name)}
    return {row: np.where(np.abs(value) < 0.4, np.array(-0.0, value.dtype), value) for row, value in drawn.items()}


def arguments(name):
    return {**EDGES[name], **({"eps": (1e-8, 1e-3)} if name == "Adafactor" else {})}


@cache
def in_torch(name):
    """Return parameters and neutral state before each step and after the last, trained with torch.amp.GradScaler."""
    params = {row: torch.nn.Parameter(torch.from_numpy(value)) for row, value in begin(name).items()}
    optimizer = torch_optimizer(name, params.values(), **arguments(name))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    out = []
    with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):  # of Muon
        for step in range(STEPS + 1):
            state = torch_side.optim.to_neutral(optimizer, params.items()).arrays
            out.append(({row: p.detach().numpy().copy() for row, p in params.items()}, state))
            for row, p in params.items():
                drawn = gradient(name, row, step)
                p.grad = None if drawn is None else torch.from_numpy(drawn) * scaler.get_scale()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    return out


@cache
def in_jax(name):
    """Return the same, of `jax_side.optim`."""
    with jax.enable_x64(True):
        own = {"iteration_dtype": "float64"} if name == "Muon" else {}
        tx = by_name(name, arguments(name), scalar_dtype="float32", **own)  # torch counts in its default dtype
        params = {row: jnp.asarray(value) for row, value in begin(name).items()}
        state, out = tx.init(params), []

        @partial(jax.jit, compiler_options=QUICK)
        def train(params, state, grads, there):
            finite = all_finite(grads)
            mask = {row: here & finite for row, here in there.items()} | {"never used": None}
            updates, state = tx.update(grads | {"never used": None}, state, params, mask=mask)
            return optax.apply_updates(params, updates), state

        for step in range(STEPS + 1):
            arrays = jax_side.optim.to_neutral(tx, state, params).arrays
            out.append(({row: np.asarray(p) for row, p in params.items()}, arrays))
            drawn = {row: gradient(name, row, step) for row in params if row != "never used"}
            there = {row: jnp.asarray(value is not None) for row, value in drawn.items()}
            grads = {row: np.zeros_like(params[row]) if value is None else value for row, value in drawn.items()}
            params, state = train(params, state, grads, there)
    return out


def differences(name, row):
    """Return the steps at which a parameter, or what is kept of it, is not torch's."""
    bar = 1e-5 if row == "of another dtype" else 1e-11
    pairs = enumerate(zip(in_jax(name), in_torch(name), strict=True))
    return [step for step, (ours, theirs) in pairs if not same(row, ours, theirs, bar)]


def same(row, ours, theirs, bar):
    values = [(ours[0][row], theirs[0][row])]
    own, other = ({leaf: v for leaf, v in one[1].items() if leaf.endswith(f".{row}")} for one in (ours, theirs))
    if own.keys() != other.keys():
        return False
    values += [(own[leaf], other[leaf]) for leaf in other]
    shapes = all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in values)
    return shapes and all(np.allclose(a, b, rtol=bar, atol=bar) for a, b in values)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_torchs_in_every_optimizer(row):
    found = {name: differences(name, row) for name in IN_TORCH if row in rows_of(name)}
    assert {name: steps for name, steps in found.items() if steps} == {}


@pytest.mark.parametrize("step", OVERFLOWS)
def test_a_step_that_overflows_changes_no_bit(step):
    """Before the first update there is still no state but Adagrad's."""
    for name in IN_TORCH:
        for walk in (in_jax(name), in_torch(name)):
            (params, state), (after, later) = walk[step : step + 2]
            assert all(value.tobytes() == after[row].tobytes() for row, value in params.items()), name
            assert state.keys() == later.keys()
            assert all(value.tobytes() == later[leaf].tobytes() for leaf, value in state.items()), name
            assert step or name == "Adagrad" or not later
