"""Compiled, in float32 and bfloat16, parameters have the bits of torch.optim, called plainly; Muon is exact too."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from benchmarks.equivalence import START, torch_run
from jax_side.optim import by_name
from jax_side.optim.arithmetic import quotient, rounded, unknown_zero

SHAPES = {"matrix": (16, 24), "vector": (64,), "unused": (9, 8)}
STEPS = 24

DECAY = {"lr": 1e-3, "weight_decay": 0.01}
DECOUPLED = {**DECAY, "decoupled_weight_decay": True}
CENTRED = {"lr": 1e-3, "centered": True}
CASES = {
    "SGD": ({"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}, 0.0),
    "RAdam": (DECOUPLED, 0.0),
    "Adamax": (DECAY, 0.0),
    "ASGD": ({"lr": 0.01, "lambd": 1e-2, "t0": 10}, 0.0),
    "Rprop": ({}, 0.0),
    "AdamW": (DECAY, 0.02),
    "Adam": (DECOUPLED, 0.02),
    "NAdam": (DECOUPLED, 0.05),
    "RMSprop": (CENTRED, 0.06),
    "Adafactor": (DECAY, 0.5),
}
"""Arguments, and the share of elements that may differ in float32, by few units in the last place. The root of
torch's library is a unit off for 17 of 100 numbers (`torch.Tensor.sqrt` against NumPy), which reaches 0.3 to 4 % of
the parameters; Adafactor's sums of squares are added in another order."""


def drawn(seed, scale=1.0):
    generator = np.random.default_rng(seed)
    return {name: (scale * generator.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}


def gradients():
    found = [drawn(seed, 0.1) for seed in range(1, STEPS + 1)]
    return [{**one, "unused": np.zeros_like(one["unused"])} for one in found]


def in_torch(name, arguments, dtype):
    """Return the parameters after each step, as float32."""
    params = {k: torch.nn.Parameter(torch.from_numpy(v).to(dtype)) for k, v in drawn(0).items()}
    optimizer = getattr(torch.optim, name)(params.values(), foreach=False, **arguments)
    out = []
    for gradient in gradients():
        for k, p in params.items():
            p.grad = torch.from_numpy(gradient[k]).to(dtype)
        optimizer.step()
        out.append({k: p.detach().float().numpy().copy() for k, p in params.items()})
    return out


def in_jax(name, arguments, dtype, how):
    """Return the same of a step that is compiled, or of a scan over the steps."""
    tx = by_name(name, arguments, scalar_dtype="float32")

    def body(carry, gradient):
        params, state = carry
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), {k: p.astype(jnp.float32) for k, p in params.items()}

    given = [{k: jnp.asarray(v).astype(dtype) for k, v in one.items()} for one in gradients()]
    params = {k: jnp.asarray(v).astype(dtype) for k, v in drawn(0).items()}
    carry, out = (params, tx.init(params)), []
    if how == "scan":
        _, walk = jax.jit(lambda c, g: jax.lax.scan(body, c, g))(carry, jax.tree.map(lambda *g: jnp.stack(g), *given))
        return [{k: np.asarray(v[step]) for k, v in walk.items()} for step in range(STEPS)]
    step = jax.jit(body)
    for gradient in given:
        carry, params = step(carry, gradient)
        out.append({k: np.asarray(p) for k, p in params.items()})
    return out


def counted(ours, theirs):
    """Return the share of elements whose bits differ after the last step, and the largest difference in units."""
    pairs = [(ours[-1][k], theirs[-1][k]) for k in SHAPES]
    differ = sum(int((a.view(np.int32) != b.view(np.int32)).sum()) for a, b in pairs)
    units = max(float(np.max(np.abs(a - b) / np.spacing(np.maximum(np.abs(b), 1e-3)))) for a, b in pairs)
    return differ / sum(a.size for a, _ in pairs), units


@pytest.mark.parametrize("name", CASES)
def test_float32_has_torchs_bits_under_jit_and_in_a_scan(name):
    """With 64-bit types, so that the scalars of a step are as exact as Python's; a row that is never used decays."""
    arguments, most = CASES[name]
    theirs = in_torch(name, arguments, torch.float32)
    with jax.enable_x64(True):
        for how in ("jit", "scan"):
            share, units = counted(in_jax(name, arguments, jnp.float32, how), theirs)
            assert share <= most, f"{how}: {share:.1%} of the elements differ"
            assert units <= (32 if most else 0)


@pytest.mark.parametrize("name", ["AdamW", "NAdam", "RAdam"])
def test_bfloat16_has_torchs_bits(name):
    """Every result that torch stores is rounded, also under jit, where a cast there and back is dropped."""
    arguments, _ = CASES[name]
    share, _ = counted(in_jax(name, arguments, jnp.bfloat16, "jit"), in_torch(name, arguments, torch.bfloat16))
    assert share <= 0.005


@pytest.mark.parametrize("how", ["jit", "scan"])
def test_a_rounded_product_is_not_contracted_and_a_quotient_is_divided(how):
    """Without the first, 23 of 100 sums differ from NumPy's."""
    generator = np.random.default_rng(0)
    a, b, c = generator.normal(size=(3, 20_000)).astype(np.float32)
    by = np.float32(0.0316)

    def inputs(count, a, b, c, by):
        zero = unknown_zero(count)
        return rounded(a * b, zero) + c, quotient(jnp.sqrt(abs(a)), by), a * b + c

    if how == "scan":
        step = lambda carry, _: (carry, inputs(*carry))  # noqa: E731
        found = jax.jit(lambda *given: jax.lax.scan(step, given, jnp.arange(1)))(jnp.int32(3), a, b, c, by)[1]
        found = [value[0] for value in found]
    else:
        found = jax.jit(inputs)(jnp.int32(3), a, b, c, by)
    wanted = a * b + c, np.sqrt(abs(a)) / by, a * b + c
    differ = [int((np.asarray(x) != y).sum()) for x, y in zip(found, wanted, strict=True)]
    assert differ[:2] == [0, 0]
    assert differ[2] > 1000, "XLA contracts no more: the function can go"


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_centred_rmsprop_is_nan_where_torch_is_and_nowhere_else(alpha):
    """With a constant gradient the variance is rounding noise, whose sign has to be torch's in each element."""
    gradient, start = np.random.default_rng(0).normal(size=64).astype(np.float32), np.zeros(64, np.float32)
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = torch.optim.RMSprop([weight], alpha=alpha, foreach=False, lr=1e-3, centered=True)
    tx = by_name("RMSprop", {"lr": 1e-3, "centered": True, "alpha": alpha})
    update = jax.jit(tx.update)
    params, found = jnp.asarray(start), 0
    state = tx.init(params)
    for _ in range(140):
        weight.grad = torch.from_numpy(gradient)
        optimizer.step()
        updates, state = update(gradient, state, params)
        params = params + updates
        np.testing.assert_array_equal(np.isnan(np.asarray(params)), torch.isnan(weight).numpy())
        found = int(torch.isnan(weight).sum())
    assert 0 < found < 64


@pytest.mark.parametrize("arguments", [{"lr": 0.01}, {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw"}], ids=str)
def test_muon_is_torchs_under_jit_in_its_own_bfloat16(arguments):
    """For 50 steps; then a sum that torch adds in another order may fall on the other side of a tie."""
    theirs = torch_run("Muon", arguments, 50)
    with jax.enable_x64(True):
        tx, weight, ours = by_name("Muon", arguments), jnp.asarray(START), []
        update, state = jax.jit(tx.update), tx.init(weight)
        for gradient in theirs.gradients:
            updates, state = update(jnp.asarray(gradient), state, weight)
            weight = weight + updates
            ours.append(np.asarray(weight))
    np.testing.assert_allclose(np.array(ours), theirs.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("wide", "default"), [(True, torch.float64), (False, torch.float32)])
def test_counts_and_scalars_follow_64_bit_types_as_torchs_follow_its_default_dtype(wide, default):
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float32))
    torch.set_default_dtype(default)
    try:
        for name in ("NAdam", "ASGD"):
            optimizer = getattr(torch.optim, name)([weight])
            weight.grad = torch.ones(3, dtype=torch.float32)
            optimizer.step()
            kept = "mu_product" if name == "NAdam" else "eta"
            theirs = optimizer.state[weight][kept]
            with jax.enable_x64(wide):
                tx, params = by_name(name, {}), {"w": jnp.ones(3, jnp.float32)}
                _, state = tx.update(params, tx.init(params), params)
                ours = state.slots["momentum_product" if name == "NAdam" else "rate"]["w"]
            assert str(state.step.dtype) == str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
            np.testing.assert_allclose(float(ours), float(theirs), rtol=1e-15 if wide else 1e-7)
    finally:
        torch.set_default_dtype(torch.float32)
