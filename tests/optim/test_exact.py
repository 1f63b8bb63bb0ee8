"""Every optimizer against torch.optim called plainly, in float64: losses of a training equal to 1e-12."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jax_side.optim import by_name, clip_by_global_norm, clip_by_value, lion
from parity.state import OPTIMIZERS
from tests.optim.draws import draw
from tests.optim.walks import IN_TORCH, QUICK, X, apart, far, jax_walk, shapes_for, start, torch_walk

BAR, FLOOR = 1e-12, 1e-13
STEPS = 100

EDGES = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"amsgrad": True, "maximize": True},
    "NAdam": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "Adamax": {"weight_decay": 0.1},
    "RMSprop": {"centered": True, "momentum": 0.5, "lr": 0.002},
    "Adagrad": {"lr_decay": 0.1, "initial_accumulator_value": 0.3, "lr": 0.1},
    "Adadelta": {"weight_decay": 0.1},
    "Rprop": {"etas": (0.3, 1.5), "step_sizes": (1e-5, 0.1)},
    "ASGD": {"lr": 0.1, "lambd": 0.01, "alpha": 0.5, "t0": 20},
    "Adafactor": {"weight_decay": 0.1},
    "Muon": {"adjust_lr_fn": "match_rms_adamw", "nesterov": False},
}
"""Arguments that turn on what the defaults leave off."""


def options(name):
    """Scalars as torch keeps them in its default dtype, which these tests leave at float32."""
    return {"scalar_dtype": "float32", **({"iteration_dtype": "float64"} if name == "Muon" else {})}


def floor(name, arguments, seed, steps):
    """Return how far one ulp of the start takes torch from itself."""
    begin = start(seed, shapes_for(name))
    moved = {key: np.nextafter(value, np.inf) for key, value in begin.items()}
    one, other = (torch_walk(name, arguments, where, steps)[0] for where in (begin, moved))
    return max(apart(one, other) - apart(one[:1], other[:1]), 0.0)


def check(name, arguments, seed=1, steps=STEPS):
    """Return whether the curves agree; None where torch's own floor is too high to judge."""
    begin = start(seed, shapes_for(name))
    theirs, _ = torch_walk(name, arguments, begin, steps)
    ours, _, _ = jax_walk(by_name(name, arguments, **options(name)), begin, steps)
    if apart(ours, theirs) <= BAR:
        return True
    return None if floor(name, arguments, seed, steps) > FLOOR else False


@pytest.mark.breaks_first("AdamW")
@pytest.mark.parametrize("name", IN_TORCH)
def test_the_defaults_take_torchs_steps(name, exact_muon):
    assert check(name, {})


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_TORCH)
def test_what_the_defaults_leave_off_takes_torchs_steps(name, exact_muon):
    """A few steps of it are in test_edges.py and test_resume.py."""
    assert check(name, EDGES[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_TORCH)
def test_odd_arguments_take_torchs_steps_for_a_thousand_steps(name, exact_muon):
    """At most a fifth of the draws is set aside, where one ulp of the start moves torch's own loss by 1e-13."""
    verdicts = [check(name, draw(name, seed), seed, steps=1000) for seed in range(10)]
    assert False not in verdicts, [draw(name, seed) for seed, holds in enumerate(verdicts) if holds is False]
    assert verdicts.count(None) <= 2


@pytest.mark.parametrize("name", ["NAdam", "ASGD"])
def test_scalars_follow_torchs_default_dtype(name):
    """In float32, the product and the rate are 1e-10 off; a test with the other dtype must see that."""
    begin = start(2)
    torch.set_default_dtype(torch.float64)
    try:
        theirs, _ = torch_walk(name, {"lr": 0.02}, begin, STEPS)
    finally:
        torch.set_default_dtype(torch.float32)
    for dtype, holds in (("float64", True), ("float32", False)):
        ours, _, _ = jax_walk(by_name(name, {"lr": 0.02}, scalar_dtype=dtype), begin, STEPS)
        assert (apart(ours, theirs) <= BAR) == holds


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (clip_by_global_norm(0.2), lambda p: torch.nn.utils.clip_grad_norm_(p, 0.2)),
        (clip_by_value(0.02), lambda p: torch.nn.utils.clip_grad_value_(p, 0.02)),
    ],
    ids=["global norm", "value"],
)
def test_clipping_and_a_moving_rate_take_torchs_steps(ours, theirs):
    rates = [0.002 * (1 + np.cos(step / 9)) for step in range(STEPS)]
    begin, arguments = start(3), {"momentum": 0.9}
    found, params, _ = jax_walk(by_name("RMSprop", arguments), begin, STEPS, rates, ours)
    expected, wanted = torch_walk("RMSprop", arguments, begin, STEPS, rates, theirs)
    assert apart(found, expected) <= BAR
    assert far(params, wanted) <= 1e-11


def test_a_rate_may_be_a_schedule_of_optax():
    table = np.linspace(0.01, 0.03, 50)
    with jax.enable_x64(True):
        by_schedule, _, state = jax_walk(
            by_name("Adam", {"lr": lambda count: jnp.asarray(table)[count]}), start(4), 50
        )
    by_update, _, _ = jax_walk(by_name("Adam", {}), start(4), 50, table)
    np.testing.assert_array_equal(by_schedule, by_update)
    assert int(state.count) == 50


def test_lion_takes_the_steps_of_the_paper():
    """Written out in NumPy, and Optax's own with the decay given."""
    begin, arguments = start(6), {"lr": 2e-3, "betas": (0.8, 0.95), "weight_decay": 0.1}
    with jax.enable_x64(True):
        gradients = [{k: np.cos(X[0, 0] * step + v) for k, v in begin.items()} for step in range(30)]
        walks = []
        for tx in (lion(**arguments), optax.lion(2e-3, 0.8, 0.95, weight_decay=0.1)):
            params = {k: jnp.asarray(v) for k, v in begin.items()}
            update, state = jax.jit(tx.update, compiler_options=QUICK), tx.init(params)
            for gradient in gradients:
                updates, state = update(gradient, state, params)
                params = optax.apply_updates(params, updates)
            walks.append({k: np.asarray(v) for k, v in params.items()})
    plain, moment = dict(begin), {k: np.zeros_like(v) for k, v in begin.items()}
    for gradient in gradients:
        for k, g in gradient.items():
            plain[k] = plain[k] - 2e-3 * (np.sign(0.8 * moment[k] + 0.2 * g) + 0.1 * plain[k])
            moment[k] = 0.95 * moment[k] + 0.05 * g
    assert far(walks[0], plain) <= BAR
    assert far(walks[1], plain) <= BAR


@pytest.mark.parametrize("name", IN_TORCH)
def test_the_table_has_torchs_arguments_and_defaults(name):
    kind, cls = OPTIMIZERS[name], getattr(torch.optim, name)
    given = {k: p.default for k, p in inspect.signature(cls).parameters.items() if k != "params"}
    assert {**kind.arguments, **dict.fromkeys(kind.flags)}.keys() == given.keys()
    assert {k: given[k] for k in kind.arguments} == dict(kind.arguments)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_functions_have_the_defaults_of_the_table(name):
    made = getattr(__import__("jax_side.optim", fromlist=[name.lower()]), name.lower())()
    assert dict(made.groups[0].arguments) == dict(OPTIMIZERS[name].arguments)


def test_no_optimizer_of_torch_is_forgotten():
    classes = {n for n, v in vars(torch.optim).items() if inspect.isclass(v) and issubclass(v, torch.optim.Optimizer)}
    assert classes - {"Optimizer", "LBFGS", "SparseAdam"} == set(IN_TORCH)
