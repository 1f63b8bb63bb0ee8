"""Faults planted into the rule of every optimizer, one line of source each: found, and the component named."""

import importlib
import inspect
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import jax_side.optim
import torch_side.optim
from jax_side.optim import by_name, rules
from parity.state import OPTIMIZERS, TrainingState
from tests.optim.test_exact import EDGES
from tests.optim.walks import MATRICES, QUICK, start, torch_optimizer

FAULTS = [
    ("SGD", "_sgd", "1 - h[\"dampening\"]", "1.0", "momentum"),
    ("SGD", "_sgd", "if has_effect(h[\"dampening\"]):", "if False:", "momentum"),
    ("SGD", "_sgd", "g + at.term(h[\"weight_decay\"], g)", "g - at.term(h[\"weight_decay\"], g)", "momentum"),
    ("Adam", "_adam", "jnp.maximum(slots[\"second_moment_maximum\"], divisor)", "jnp.maximum("
     "slots[\"second_moment_maximum\"], divisor / at.once[\"root\"] ** 2)", "second_moment_maximum"),
    ("Adam", "_start", "if decoupled:", "if True:", "first_moment"),
    ("AdamW", "_adam", "at.stored(denominator + at.term(h[\"eps\"], g))",
     "jnp.sqrt(denominator**2 + h[\"eps\"])", "model.params"),
    ("AdamW", "_corrections", "correction(beta, t)", "correction(beta, t - first + 1)", "model.params"),
    ("NAdam", "_nadam_scalars", "(t, t + 1)", "(t, t)", "model.params"),
    ("NAdam", "_nadam_scalars", "product * mu", "mu * mu", "momentum_product"),
    ("RAdam", "_radam_scalars", "length > 5", "length > 4", "model.params"),
    ("Adamax", "_adamax", "jnp.abs(g) + at.term(h[\"eps\"], g)", "jnp.abs(g)", "infinity_norm"),
    ("RMSprop", "_rmsprop", "at.stored(jnp.sqrt(variance)) + at.term(h[\"eps\"], g)",
     "jnp.sqrt(variance + h[\"eps\"])", "momentum"),
    ("RMSprop", "_rmsprop", "-at.term(h[\"lr\"], g) * buffer", "at.term(h[\"lr\"], g) * buffer", "model.params"),
    ("Adagrad", "_adagrad_scalars", "(t - 1)", "t", "model.params"),
    ("Adadelta", "_adadelta", "(1 - rho) * step * step", "(1 - rho) * g * g", "squared_updates"),
    ("Rprop", "_rprop", "jnp.where(sign < 0, 0, g)", "g", "previous_gradient"),
    ("ASGD", "_asgd_scalars", "h[\"lr\"] * t)", "h[\"lr\"] * (t - 1))", "rate"),
    ("Adafactor", "_adafactor", "means[1], weight", "means[1], 1 - weight", "column_variance"),
    ("Adafactor", "_adafactor_scalars", "jnp.minimum(h[\"lr\"], 1 / jnp.sqrt(t))", "h[\"lr\"]", "model.params"),
    ("Muon", "_muon", "max(rows, columns)", "min(rows, columns)", "model.params"),
    ("Lion", "_lion", "at.product(like(b2, m) * m) + like(1 - b2, g) * g",
     "like(b1, m) * m + like(1 - b1, g) * g", "momentum"),
    ("Lion", "_lion", "at.decayed(p), -", "at.decayed(p), ", "model.params"),
]  # fmt: skip
"""Optimizer, function, what stands there, what is planted, the component that must be named first."""

MORE = {
    "AdamW": {"eps": 1e-3},
    "Adam": {"eps": 1e-3},
    "RMSprop": {"eps": 1e-3},
    "Adamax": {"eps": 1e-3},
    "SGD": {"weight_decay": 0.1},
    "Adafactor": {"lr": 0.9},
    "RAdam": {"betas": (0.9, 0.98)},
}
BAR = 1e-11
STEPS = 7


LION = {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1}


class LionOfThePaper:
    """Lion, algorithm 2 of arXiv:2302.06675, in torch; torch.optim has none."""

    def __init__(self, params):
        self.params, self.moment = params, {k: torch.zeros_like(p) for k, p in params.items()}

    def step(self):
        (b1, b2), decay = LION["betas"], LION["weight_decay"]
        for k, p in self.params.items():
            m = self.moment[k]
            p.data = p.data - LION["lr"] * (torch.sign(b1 * m + (1 - b1) * p.grad) + decay * p.data)
            self.moment[k] = b2 * m + (1 - b2) * p.grad

    def state(self):
        arrays = {f"optimizer.momentum.{k}": m.numpy() for k, m in self.moment.items()}
        return TrainingState(arrays=arrays, scalars={"optimizer.name": "Lion"})


def first_difference(name, arguments=None):
    """Return the component that differs first between torch.optim and ours, and the step; None if none does."""
    if arguments is None:
        arguments = LION if name == "Lion" else {**EDGES[name], **MORE.get(name, {})}
    begin = start(4, MATRICES if name == "Muon" else {"w": (4, 3), "b": (3,)})
    params = {k: torch.nn.Parameter(torch.from_numpy(v.copy())) for k, v in sorted(begin.items())}
    optimizer = LionOfThePaper(params) if name == "Lion" else torch_optimizer(name, params.values(), **arguments)
    generator = np.random.default_rng(2)
    with jax.enable_x64(True):
        own = {"iteration_dtype": "float64"} if name == "Muon" else {}
        tx = by_name(name, arguments, scalar_dtype="float32", **own)
        ours = {k: jnp.asarray(v) for k, v in begin.items()}
        update, state = jax.jit(tx.update, compiler_options=QUICK), tx.init(ours)
        for step in range(STEPS):
            grads = {k: generator.normal(size=v.shape) for k, v in begin.items()}
            for k, p in params.items():
                p.grad = torch.from_numpy(grads[k].copy())
            optimizer.step()
            updates, state = update(grads, state, ours)
            ours = optax.apply_updates(ours, updates)
            mine = jax_side.optim.to_neutral(tx, state, ours)
            other = optimizer.state() if name == "Lion" else torch_side.optim.to_neutral(optimizer, params.items())
            for leaf, value in other.scalars.items():
                if mine.scalars[leaf] != value:
                    return leaf.split(".")[1], step
            found, wanted = mine.arrays, other.arrays
            assert found.keys() == wanted.keys()
            for leaf, value in wanted.items():
                if not np.allclose(found[leaf], value, rtol=BAR, atol=BAR):
                    return leaf.split(".")[1], step
            for k, p in params.items():
                if not np.allclose(np.asarray(ours[k]), p.detach().numpy(), rtol=BAR, atol=BAR):
                    return "model.params", step
    return None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_a_fault_nothing_differs(name, exact_muon):
    assert first_difference(name) is None


DEFAULTS = [("AdamW", "weight_decay", 1e-4), ("RMSprop", "alpha", 0.9), ("Adagrad", "initial_accumulator_value", 0.1)]
"""Those of Optax."""


@pytest.mark.parametrize(("name", "argument", "planted"), DEFAULTS)
def test_a_wrong_default_is_found_in_the_groups_first(name, argument, planted, monkeypatch):
    monkeypatch.setitem(OPTIMIZERS[name].arguments, argument, planted)
    assert first_difference(name, {}) == ("groups", 0)


@pytest.mark.parametrize(("name", "function", "there", "planted", "component"), FAULTS)
def test_a_fault_is_found_and_its_component_named_first(
    name,
    function,
    there,
    planted,
    component,
    exact_muon,
    monkeypatch,
):
    rule, scalars = rules.RULES[name]
    module = importlib.import_module(rule.__module__)
    source = textwrap.dedent(inspect.getsource(getattr(module, function)))
    assert source.count(there) == 1, "the planted line is no more"
    space = dict(vars(module))
    exec(compile(source.replace(there, planted), f"<{function}>", "exec"), space)
    names = {own.__name__ for own in (rule, scalars) if own}
    for other in (names | {"_adam"}) & {*vars(module)} - {function}:  # those that call it see the faulty one
        exec(compile(textwrap.dedent(inspect.getsource(getattr(module, other))), f"<{other}>", "exec"), space)
    planted_rule = space[rule.__name__], space[scalars.__name__] if scalars else None
    monkeypatch.setitem(rules.RULES, name, planted_rule)
    found = first_difference(name)
    assert found is not None
    assert found[0] == component


def test_every_optimizer_has_a_fault():
    assert {fault[0] for fault in FAULTS} == set(OPTIMIZERS)
