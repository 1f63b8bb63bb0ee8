"""`parity optim` measures what it prints, with the arguments that it was given."""

import doctest
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from benchmarks.equivalence import OBVIOUS
from jax_side.optim import obvious as module
from jax_side.optim.obvious import obvious
from parity import sides
from parity.checks import measure_optimizer
from parity.checks.translating import least_squares
from parity.cli import main
from parity.contract import Measured
from parity.report import optimizer_report
from parity.state import OPTIMIZERS

STEPS = 60


def truth(name, arguments, tx):
    """Return the first step at which a translation is another training, and the largest difference: without scan,
    one call of the loss after another."""
    problem = least_squares()
    weight = torch.nn.Parameter(torch.from_numpy(problem.start.copy()))
    optimizer = getattr(torch.optim, name)([weight], **arguments)
    apart = []
    with jax.enable_x64(True):
        params = jnp.asarray(problem.start)
        loss = lambda w, x, y: ((x @ w - y) ** 2).mean()  # noqa: E731
        state, step_of = tx.init(params), jax.jit(jax.value_and_grad(loss))
        for step in range(STEPS):
            x, y = problem.x[step % 4], problem.y[step % 4]
            value, gradient = step_of(params, x, y)
            updates, state = tx.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            optimizer.zero_grad()
            theirs = loss(weight, torch.from_numpy(x), torch.from_numpy(y))
            theirs.backward()
            optimizer.step()
            apart.append(abs(float(value) - theirs.item()) / theirs.item())
    differs = np.flatnonzero(np.array(apart) > 1e-12)
    return (int(differs[0]) if differs.size else None), max(apart)


CASES = {
    "Adam lr=0.01 weight_decay=0.1": [
        ("optax.adam(0.01)", ("weight_decay",), lambda: optax.adam(0.01)),
        ("optax.adamw(0.01, weight_decay=0.1)", (), lambda: optax.adamw(0.01, weight_decay=0.1)),
        (
            "optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01))",
            (),
            lambda: optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)),
        ),
    ],
    "SGD lr=0.1 momentum=0.9 nesterov=True": [
        (
            "optax.sgd(0.1, momentum=0.9, nesterov=True)",
            (),
            lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
        )
    ],
    "SGD lr=0.01 momentum=0.9 dampening=0.5": [
        ("optax.sgd(0.01, momentum=0.9)", ("dampening",), lambda: optax.sgd(0.01, momentum=0.9))
    ],
    "RMSprop centered=True": [
        (
            "optax.rmsprop(0.01, decay=0.99, centered=True)",
            (),
            lambda: optax.rmsprop(0.01, decay=0.99, centered=True),
        )
    ],
    "NAdam lr=0.01 weight_decay=0.1 decoupled_weight_decay=True": [
        ("optax.nadamw(0.01, weight_decay=0.1)", (), lambda: optax.nadamw(0.01, weight_decay=0.1)),
        ("optax.nadam(0.01)", ("weight_decay",), lambda: optax.nadam(0.01)),
    ],
}


@pytest.mark.parametrize("line", CASES)
def test_the_figures_are_those_of_the_arguments_that_were_given(line):
    """The row of the page is `optax.adam(0.01)`, which never differs; with decay it does, from the first step on."""
    name, *words = line.split()
    arguments = {word.partition("=")[0]: eval(word.partition("=")[2], {}) for word in words}
    found = measure_optimizer(OPTIMIZERS[name], arguments, STEPS)
    assert [(one.text, one.left_out) for one in found.translations] == [case[:2] for case in CASES[line]]
    for one, (_, _, build) in zip(found.translations, CASES[line], strict=True):
        first, most = truth(name, arguments, build())
        assert one.first == first
        assert one.after_all == pytest.approx(most, rel=1e-6, abs=1e-13)
    assert found.exact is not None
    assert found.exact < 1e-13
    assert (found.judged, found.counted, found.apart) == (STEPS, STEPS, None)


def test_the_command_prints_what_was_measured(capsys):
    assert main(["optim", "sgd", "lr=0.1", "momentum=0.9", "weight_decay=0.2", "--steps", "210"]) == 0
    found = measure_optimizer(OPTIMIZERS["SGD"], arguments := {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}, 210)
    out = capsys.readouterr().out
    assert optimizer_report(OPTIMIZERS["SGD"], arguments, found) == out.rstrip("\n")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert rows[2] == "obvious translation optax.sgd(0.1, momentum=0.9)"
    assert rows[3:5] == ["leaves out weight_decay", "first differs step 1"]
    assert rows[5].startswith("in 200 steps")
    assert rows[6].startswith("in 210 steps")
    assert rows[7] == "also written optax.chain(optax.add_decayed_weights(0.2), optax.sgd(0.1, momentum=0.9))"
    assert rows[8] == "first differs never"


def test_what_one_would_write_is_what_the_page_has():
    for name, (arguments, text) in OBVIOUS.items():
        first, *_ = obvious(OPTIMIZERS[name], arguments)
        assert str(first[0]).replace("1e-06", "1e-6") == text


@pytest.mark.parametrize("name", [name for name, kind in OPTIMIZERS.items() if kind.in_torch])
def test_every_argument_is_translated_or_named_as_left_out(name):
    """One argument after the other at another value than PyTorch's default; Optax builds what is written."""
    other = {
        "lr": 0.5, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.2, "momentum": 0.7, "alpha": 0.5, "t0": 9.0,
        "momentum_decay": 0.1, "dampening": 0.3, "lr_decay": 0.1, "initial_accumulator_value": 0.3, "rho": 0.4,
        "etas": (0.3, 1.4), "step_sizes": (1e-4, 9), "lambd": 0.1, "beta2_decay": -0.5, "d": 2.0, "ns_steps": 3,
        "ns_coefficients": (3.0, -4.0, 2.0), "adjust_lr_fn": "original",
    }  # fmt: skip
    kind = OPTIMIZERS[name]
    defaults = {str(call) for call, _ in obvious(kind, {})}
    for argument, default in kind.arguments.items():
        value = not default if isinstance(default, bool) else other[argument]
        given = {argument: (1e-8, 1e-2) if isinstance(default, tuple) and argument == "eps" else value}
        if argument == "nesterov" and name == "SGD":
            given["momentum"] = 0.7
        calls = obvious(kind, given)
        assert all(str(call) not in defaults or argument in one.left_out or argument == "decoupled_weight_decay"
                   for call, one in calls)  # fmt: skip
        for call, one in calls:
            assert hasattr(call.build(), "update"), one.text


def test_an_optimizer_that_climbs_is_measured_where_it_can(capsys):
    assert main(["optim", "SGD", "lr=0.1", "maximize=True", "momentum=0.5", "--steps", "30"]) == 0
    out = capsys.readouterr().out
    assert "optax.chain(optax.scale(-1.0), optax.sgd(0.1, momentum=0.5))\n  first differs      never" in out


def test_a_loss_that_is_not_finite_ends_what_is_compared(capsys):
    assert main(["optim", "SGD", "lr=1000", "--steps", "80"]) == 0
    out = capsys.readouterr().out
    assert "first differs      never\n  in 55 steps" in out
    assert "PyTorch's loss is not finite from step 55 on" in out
    assert main(["optim", "SGD", "lr=1e300", "--steps", "3"]) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Adam lr=0.1 lr=0.2", "lr: is given twice: 0.1 and 0.2"),
        ("Adam foreach=maybe", "Adam.foreach: must be True, False or None, got 'maybe'"),
        ("Adam fused=True foreach=True", "Adam: PyTorch refuses these arguments here: RuntimeError: `fused` and"),
        ("Adam capturable=True", "Adam: PyTorch refuses these arguments here: AssertionError: If capturable=True"),
        ("SGD nesterov=True", "SGD.nesterov: needs momentum above 0 and dampening 0"),
        ("SGD lr=[]", "SGD.lr: must be a finite number of at least 0, got ()"),
        (
            "Lion lr=0.1",
            "Lion: has no row, for torch.optim has none to compare with; call jax_side.optim.lion(lr=0.1)",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_error(line, message, capsys):
    assert main(["optim", *line.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("absent", ["jax", "optax", "torch"])
def test_without_a_framework_the_code_is_shown_and_what_is_missing(absent, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(sides.importlib.util, "find_spec", lambda name, *rest: None if name == absent else find(name))
    assert main(["optim", "SGD", "lr=0.1"]) == 0
    out = capsys.readouterr().out
    assert "jax_side.optim.sgd(lr=0.1)" in out
    assert f"no: side {'torch' if absent == 'torch' else 'jax'!r} needs the module {absent!r}: pip install" in out
    assert "first differs" not in out


def test_an_exact_call_that_is_not_exact_is_said():
    found = Measured(steps=9, counted=9, translations=(), exact=1e-3, apart=4, judged=9, source="a.py:1")
    text = optimizer_report(OPTIMIZERS["SGD"], {}, found)
    assert "1.0e-03 in 9 steps, by more than 1e-12 from step 4 on" in text


def test_the_examples_of_the_module_are_true():
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted >= 2
