"""Causes by one changed operation: a fault is planted in a plain function, and the change that heals it is named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from jax_side.probes.programs import JaxProgram
from parity.checks.programs import explain
from parity.checks.programs.operands import operands_of
from parity.contract import OperationEdit, ProgramOperation
from torch_side.probes.programs import TorchProgram

_RNG = np.random.default_rng(5)
_WIDE, _NARROW = _RNG.standard_normal((6, 8)), _RNG.standard_normal((8, 4))
_INPUTS = [np.random.default_rng(seed).standard_normal((5, 6)) for seed in (1, 2)]


def _trainer(x: Any) -> Any:
    wide, narrow = torch.from_numpy(_WIDE), torch.from_numpy(_NARROW)
    h = F.hardswish(x @ wide) * 0.5
    a, b = h.chunk(2, -1)
    y = torch.cat([a, b], -1) @ narrow
    return (y - y.mean(0)) / (y.var(0, unbiased=False) + 1e-3).sqrt()


def _port(x: Any, faults: str) -> Any:
    fault = faults.split("+")
    h = x @ _WIDE
    h = jax.nn.silu(h) if "activation" in fault else h * jnp.clip(h + 3.0, 0.0, 6.0) / 6.0
    h = h * (0.3 if "number" in fault else 0.5)
    a, b = jnp.split(h, 2, -1)
    if "order" in fault:
        a, b = b, a
    y = jnp.concatenate([a, b], -1)
    y = (jnp.tanh(y) if "added" in fault else y) @ _NARROW
    c = y - y.mean(0)
    v = (c * c).sum(0) / (4.0 if "variance" in fault else 5.0)
    epsilon = 0.02 if "epsilon" in fault else 1e-3
    return c / jnp.sqrt(v + epsilon) * (2.0 if "factor" in fault else 1.0)


def _explained(fault: str) -> str:
    here = [TorchProgram(lambda x=x: lambda: _trainer(torch.from_numpy(x))) for x in _INPUTS]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [_port(x, fault)], jnp.asarray(x)) for x in _INPUTS]
    return ", or ".join(one.text for one in explain(here, there))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("activation", ("hardswish here", "SiLU there")),
        ("number", ("0.3 there", "0.5 here")),
        ("order", ("order", "[1, 0]")),
        ("added", ("tanh",)),
        ("variance", ("unbiased False here", "True there")),
        ("epsilon", ("0.001 here", "0.02 there")),
        ("factor", ("mul is applied there",)),
    ],
)
def test_the_change_is_named(fault: str, words: tuple[str, ...]) -> None:
    said = _explained(fault)
    assert all(word in said for word in words), said
    assert ".py:" in said, "the line is told"


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("activation+epsilon", ("hardswish here", "SiLU there", "0.001 here", "0.02 there")),
        ("number+variance", ("0.3 there", "0.5 here", "unbiased False here", "True there")),
        ("order+number", ("[1, 0]", "0.3 there", "0.5 here")),
    ],
)
def test_two_changes_are_named_together(faults: str, words: tuple[str, ...]) -> None:
    """None of the two alone makes anything equal that is returned."""
    said = _explained(faults)
    assert all(word in said for word in words), said
    assert "with both changed all values are equal" in said


def _both(trainer: Any, port: Any) -> str:
    here = [TorchProgram(lambda x=x: lambda: trainer(torch.from_numpy(x))) for x in _INPUTS]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [port(x)], jnp.asarray(x)) for x in _INPUTS]
    return ", or ".join(one.text for one in explain(here, there))


def test_a_mask_is_filled_with_another_number() -> None:
    def trainer(x: torch.Tensor) -> torch.Tensor:
        return (x @ torch.from_numpy(_WIDE)).masked_fill(x.sum(1, keepdim=True) > 0, -torch.inf).softmax(0)

    def port(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.where(x.sum(1, keepdims=True) > 0, -1.0, x @ _WIDE), 0)

    assert "-inf here" in _both(trainer, port)
    assert "-1 there" in _both(trainer, port)


def test_a_gate_is_taken_before_the_product_of_matrices() -> None:
    square, bias = _WIDE[:, :6], np.arange(6.0)

    def trainer(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.sigmoid(x[:, :1] + x) * (x @ torch.from_numpy(square) + torch.from_numpy(bias)))

    def port(x: jax.Array) -> jax.Array:
        return jnp.tanh((jax.nn.sigmoid(x[:, :1] + x) * x) @ square + bias)

    said = _both(trainer, port)
    assert "order: after dot_general and add here, mul before dot_general and add there" in said


def test_a_scale_is_taken_before_the_bias() -> None:
    scale, bias = np.array(1.7), np.arange(8.0)

    def trainer(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ torch.from_numpy(_WIDE) * torch.from_numpy(scale) + torch.from_numpy(bias))

    def port(x: jax.Array) -> jax.Array:
        return jnp.tanh((x @ _WIDE + bias) * scale)

    said = _both(trainer, port)
    assert "order: " in said
    assert "before" in said


def test_one_place_is_taken_in_place_of_a_mean() -> None:
    said = _both(lambda x: torch.tanh(x).mean(0) ** 3, lambda x: jnp.tanh(x)[0] ** 3)
    assert "reduction: mean over axis 0 here" in said
    assert "there" in said


def test_nothing_is_said_of_equal_programs_and_of_two_faults() -> None:
    """What no single change explains has no cause."""
    assert _explained("") == ""
    here = [
        TorchProgram(lambda x=x: lambda: torch.tanh(torch.from_numpy(x)) @ torch.from_numpy(_WIDE)) for x in _INPUTS
    ]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda x: [jnp.sin(x) ** 3 @ (_WIDE + 0.1) + 1.5], jnp.asarray(x)) for x in _INPUTS]
    assert explain(here, there) == []


def test_a_program_computes_what_its_function_does() -> None:
    """Equations by NumPy and by JAX alike, loops turn by turn."""

    def function(x: jax.Array) -> list[jax.Array]:
        def turn(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            carry = jax.nn.gelu(carry + row) + jnp.cumsum(row)
            return carry, carry.max() * row

        last, rows = jax.lax.scan(turn, x[0], x, reverse=True)
        return [last, jax.nn.softmax(rows), jnp.where(rows > 0, rows, jnp.sort(rows)), x.T @ rows]

    with jax.enable_x64(True):
        given = jnp.asarray(_INPUTS[0])
        program = JaxProgram(function, given)
        for made, wanted in zip(program.outputs, function(given), strict=True):
            np.testing.assert_allclose(made, np.asarray(wanted), rtol=1e-12, atol=1e-12)
    again = program.run({})
    assert again is not None
    assert all(np.array_equal(a, b) for a, b in zip(again, program.outputs, strict=True))


def test_a_changed_program_leaves_gradients_on() -> None:
    """The user's own `no_grad` is left as it ends, whatever is changed inside it."""

    def call() -> torch.Tensor:
        with torch.no_grad():
            x = torch.sin(torch.from_numpy(_INPUTS[0])) * 2.0
        return x.sum() + 1.0

    program = TorchProgram(lambda: call)
    for at, one in enumerate(program.operations):
        for edit in (OperationEdit(numbers={"0": 3.0, "1": 3.0}), OperationEdit(settings={"no": 1})):
            program.run({at: edit})
            assert torch.is_grad_enabled(), one.kind


def _of_draws(trainer: Any, port: Any, draws: Any, names: Any = ({}, {})) -> str:
    here = [TorchProgram(lambda a=a: lambda: trainer(*[torch.from_numpy(np.array(x)) for x in a])) for a in draws]
    with jax.enable_x64(True):
        there = [JaxProgram(lambda *a: [port(*a)], *map(jnp.asarray, a)) for a in draws]
    return ", or ".join(one.text for one in explain(here, there, None, names))


_DRAWS = [[_RNG.standard_normal(shape) for shape in ((5, 6), (5, 6), (6, 6))] for _ in range(2)]


def test_two_values_are_exchanged_in_a_line() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        kept = F.kl_div(F.log_softmax(a / 3, -1), F.softmax(b / 3, -1), reduction="batchmean")
        return kept + (a * a).mean()

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        one, two = jax.nn.log_softmax(a / 3), jax.nn.log_softmax(b / 3)
        return (jnp.exp(one) * (one - two)).sum(-1).mean() + (a * a).mean()

    said = _of_draws(trainer, port, _DRAWS)
    assert said.startswith("values exchanged: each in place of the other here, what log_softmax makes at")


def test_weights_of_two_terms_are_exchanged() -> None:
    draws = [[a, b, np.array(share)] for (a, b, _), share in zip(_DRAWS, (0.3, 0.6), strict=True)]

    def trainer(a: torch.Tensor, b: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        return torch.softmax(float(share) * a + (1 - float(share)) * b, -1)

    def port(a: jax.Array, b: jax.Array, share: jax.Array) -> jax.Array:
        return jax.nn.softmax((1 - share) * a + share * b, -1)

    said = _of_draws(trainer, port, draws)
    assert said.startswith("values exchanged: exchanged here, what sub makes at")
    assert "in two operations mul there" in said


def test_a_leaf_is_transposed_in_a_loop_and_told_by_its_name() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for at in range(4):
            a = torch.logsumexp(a[:, :, None] + w + b[:, at, None, None], 1)
        return torch.logsumexp(a, -1) + w[0].sum()

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        def turn(a: jax.Array, one: jax.Array) -> tuple[jax.Array, None]:
            return jax.nn.logsumexp(a[:, :, None] + w.T + one[:, None, None], axis=1), None

        return jax.nn.logsumexp(jax.lax.scan(turn, a, b.T[:4])[0], -1) + w[0].sum()

    names = {"the leaf moves": _DRAWS[0][2]}, {"the leaf moves": _DRAWS[0][2]}
    said = _of_draws(trainer, port, _DRAWS, names)
    assert said.startswith("operand: the leaf moves as it is here")
    assert "axes 0 and 1 exchanged there" in said


def test_edges_of_the_source_are_taken_for_those_of_the_target() -> None:
    draws_of_edges = np.random.default_rng(9)
    source, target = draws_of_edges.integers(0, 5, 12), draws_of_edges.integers(0, 5, 12)
    source[:5] = target[:5] = np.arange(5)
    draws = [[a, source, target] for a, _, _ in _DRAWS]

    def trainer(x: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        weight = torch.exp(F.leaky_relu(x.sum(1)[s] + (x * x).sum(1)[t], 0.2))
        share = weight / torch.zeros(5, dtype=x.dtype).index_add(0, t, weight)[t]
        return torch.zeros_like(x).index_add(0, t, share[:, None] * x[s])

    def port(x: jax.Array, s: jax.Array, t: jax.Array) -> jax.Array:
        scores = jax.nn.leaky_relu(x.sum(1)[s] + (x * x).sum(1)[t], 0.2)
        weight = jnp.exp(scores - jax.ops.segment_max(scores, s, 5)[s])
        share = weight / jax.ops.segment_sum(weight, s, 5)[s]
        return jax.ops.segment_sum(share[:, None] * x[s], t, 5)

    names = {"input 1": source, "input 2": target}
    said = _of_draws(trainer, port, draws, (names, names))
    assert "value taken: input 2 here" in said
    assert "input 1 there" in said


def test_a_weight_is_given_to_the_other_class() -> None:
    labels = (np.random.default_rng(3).random((5, 6)) > 0.5) * 1.0

    def trainer(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(z, y, pos_weight=torch.tensor(2.0, dtype=z.dtype))

    def port(z: jax.Array, y: jax.Array) -> jax.Array:
        yes, no = -jax.nn.log_sigmoid(z), -jax.nn.log_sigmoid(-z)
        return (y * yes + 2.0 * (1 - y) * no).mean()

    said = _of_draws(trainer, port, [[a, labels] for a, _, _ in _DRAWS])
    assert said.startswith("factor: 2 times that of mul, in the same line here, 2 times the result of mul there")


def test_a_gate_inside_a_loop_that_begins_with_zeros() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(a)
        for turn in range(3):
            x = a * (turn + 1)
            state = torch.tanh(x + torch.sigmoid(2 * x) * (state @ w)) * 0.5 + state * 0.5
        return state

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        def turn(state: jax.Array, by: jax.Array) -> tuple[jax.Array, None]:
            x = a * by
            return jnp.tanh(x + (jax.nn.sigmoid(2 * x) * state) @ w) * 0.5 + state * 0.5, None

        return jax.lax.scan(turn, jnp.zeros_like(a), jnp.arange(1.0, 4.0))[0]

    assert _of_draws(trainer, port, _DRAWS).startswith("order: after dot_general here, mul before dot_general there")


def test_a_gate_before_a_sum_of_another_shape_is_looked_at() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cat([(a * b) @ w, b], -1) + torch.cat([a, a], -1)

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        wider = jnp.concatenate([a, 2.0 * a], -1)
        return jnp.concatenate([(a * b) @ w, b], -1) + wider

    assert "mul" in _of_draws(trainer, port, _DRAWS)


def test_a_gate_is_taken_before_the_product_and_without_the_bias_that_is_added_last() -> None:
    bias = np.arange(6.0)

    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(b + torch.sigmoid(2 * b) * (a @ w + torch.from_numpy(bias)))

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(b + (jax.nn.sigmoid(2 * b) * a) @ w + bias)

    said = _of_draws(trainer, port, _DRAWS)
    assert said.startswith("order: after dot_general and what is added to it here, mul before dot_general and")


def test_a_constant_mask_holds_another_number_and_is_no_function_of_it() -> None:
    """The hyperbolic tangent makes -1 of -100, as any function does of one number."""
    beyond = np.triu(np.ones((6, 6)), 2)
    said = _of_draws(
        lambda a, b, w: torch.softmax(w + torch.from_numpy(beyond) * -100.0, -1) @ w,
        lambda a, b, w: jax.nn.softmax(w + np.where(beyond > 0, -1.0, 0.0), -1) @ w,
        _DRAWS,
    )
    assert said.startswith("number that mul fills in: -100 here")
    assert "activation" not in said


def test_a_correction_along_the_other_axis_is_no_activation() -> None:
    """ReLU of numbers that are all negative makes zeros, as leaving them out does: a softmax does not show it."""
    draws = [[w, np.log(np.abs(a[0]) / 9)] for a, _, w in _DRAWS]
    said = _of_draws(
        lambda s, q: torch.softmax(s - q[None], -1) ** 2,
        lambda s, q: jax.nn.softmax(s - q[:, None], -1) ** 2,
        draws,
    )
    assert said.startswith("left out: sub is applied here")
    assert "ReLU" not in said


def test_differences_are_taken_along_another_axis() -> None:
    said = _of_draws(
        lambda a, b, w: (torch.tanh(a @ w)[:, 1:] - torch.tanh(a @ w)[:, :-1]).pow(2).mean() + b.mean(),
        lambda a, b, w: ((jnp.tanh(a @ w)[1:] - jnp.tanh(a @ w)[:-1]) ** 2).mean() + b.mean(),
        _DRAWS,
    )
    assert said.startswith("setting: __getitem__ with places of axis 1 here")
    assert "of axis 0 there" in said


def test_of_several_factors_that_would_do_the_one_is_told_that_the_other_program_has() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        share = torch.softmax(a, -1).mean(0)
        return (b * b).mean() + 0.01 * (6 * (share * share).sum())

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        share = jax.nn.softmax(a, -1).mean(0)
        return (b * b).mean() + 0.1 * (6 * (share * share).sum())

    said = _of_draws(trainer, port, _DRAWS)
    assert said.startswith("number of mul: 0.01 here")
    assert "0.1 there" in said
    assert "60" not in said


def test_shifts_of_all_rolls_go_the_other_way() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        inner = torch.softmax(torch.roll(w, (-1, -2), (0, 1)).reshape(-1, 3), -1).reshape(6, 6)
        return a @ torch.roll(inner, (1, 2), (0, 1))

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        inner = jax.nn.softmax(jnp.roll(w, (1, 2), (0, 1)).reshape(-1, 3), -1).reshape(6, 6)
        return a @ jnp.roll(inner, (-1, -2), (0, 1))

    said = _of_draws(trainer, port, _DRAWS)
    assert said.startswith("setting: roll with shifts as they are here")
    assert "the other way round there" in said


def test_a_function_of_a_library_is_told_at_the_line_that_calls_it() -> None:
    """JAX traces it once: a second call has the equations of the first, with their lines."""

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        first = jax.nn.silu(a @ w)
        return jnp.sin(jax.nn.silu(first @ w) + a)

    with jax.enable_x64(True):
        program = JaxProgram(lambda *a: [port(*a)], *map(jnp.asarray, _DRAWS[0]))
    lines = [one.place for one in program.operations if one.kind == "logistic"]
    assert len(set(lines)) == 2


@pytest.mark.soak
def test_three_changes_are_named_together() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.layer_norm(F.gelu(a @ w), (6,), eps=1e-3) @ w * 0.5)

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        h = jax.nn.gelu(a @ w)
        c = h - h.mean(-1, keepdims=True)
        return jnp.tanh(c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-2) @ w * 0.4)

    said = _of_draws(trainer, port, _DRAWS)
    assert "GELU (erf) here" in said
    assert "0.001 here, 0.01 there" in said
    assert "0.5 here" in said
    assert "with all of them changed all values are equal" in said


def test_what_a_trial_warns_of_is_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    """Another reduction of `kl_div` is tried, which PyTorch warns of."""
    _of_draws(
        lambda a, b, w: F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean") * 2,
        lambda a, b, w: (jax.nn.softmax(b) * (jax.nn.log_softmax(b) - jax.nn.log_softmax(a))).sum() * 3 / 5,
        _DRAWS,
    )
    assert not [one for one in recwarn if "reduction" in str(one.message)]


def test_a_loss_that_takes_gradients_itself_is_traced() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = a.clone().requires_grad_()
        slope = torch.autograd.grad(torch.sin(x @ w).sum(), x, create_graph=True)[0]
        return (slope**2).mean() + 10 * (b * b).mean()

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        return (jax.grad(lambda x: jnp.sin(x @ w).sum())(a) ** 2).mean() + 4.0 * (b * b).mean()

    said = _of_draws(trainer, port, _DRAWS)
    assert "10 here" in said
    assert "4 there" in said


def test_differences_along_another_axis_beside_a_slice_of_something_else_and_dead_code() -> None:
    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return b[:, 1:].sum() + ((a[:, 1:] - a[:, :-1]) ** 2).mean()  # one line, three slices

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        other = ((a[:, 1:] - a[:, :-1]) ** 2).mean()  # nothing takes it
        other = ((a[1:] - a[:-1]) ** 2).mean()
        return b[:, 1:].sum() + other

    said = _of_draws(trainer, port, _DRAWS)
    assert "__getitem__ with places of axis 1 here" in said
    assert "of axis 0 there" in said


def test_what_is_left_out_on_both_sides_is_no_cause() -> None:
    """Any two programs are equal without what differs in each; left out on one side, it is what differs."""

    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(a) + 0.1 * torch.sin(b @ w)) @ w

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        return (jnp.tanh(a) @ w) + 0.1 * jnp.exp(-(b * b))

    def without(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(a) @ w

    assert not _of_draws(trainer, port, _DRAWS)
    assert _of_draws(trainer, without, _DRAWS).startswith("left out: add is applied here")


def _convolved(x: Any, paddings: tuple[int, int]) -> torch.Tensor:
    """Return the mean of two convolutions of dilations 2 and 4 over the last axis."""
    wide = torch.from_numpy(np.random.default_rng(8).standard_normal((4, 1, 3)))
    deep = torch.from_numpy(np.random.default_rng(9).standard_normal((4, 4, 3)))
    h = torch.tanh(F.conv1d(x[:, None], wide, padding=paddings[0], dilation=2))
    return F.conv1d(h, deep, padding=paddings[1], dilation=4).mean(-1)


def test_convolutions_are_padded_as_if_they_had_no_dilation() -> None:
    """Each has another dilation, and all of them another length behind it."""
    draws = [np.random.default_rng(seed).standard_normal((2, 20)) for seed in (1, 2)]

    def said(paddings: tuple[int, int]) -> str:
        here, there = (
            [TorchProgram(lambda x=x, own=own: lambda: _convolved(torch.from_numpy(x), own)) for x in draws]
            for own in ((2, 4), paddings)
        )
        return ", or ".join(one.text for one in explain(here, there))

    assert "conv1d with padding for its dilation here" in said((1, 1))
    assert "as for none there" in said((1, 1))
    assert "padding 4 here" in (one := said((2, 3))), one
    assert "3 there" in one
    assert said((2, 4)) == ""


def test_places_at_the_ends_of_an_axis_are_padded_otherwise() -> None:
    kernel = np.random.default_rng(8).standard_normal((1, 1, 3))

    def trainer(x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(F.pad(x[:, None], (2, 0)), torch.from_numpy(kernel))

    def port(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, ((0, 0), (1, 1)))
        return sum(padded[:, None, at : at + 6] * kernel[0, 0, at] for at in range(3))

    said = _both(trainer, port)
    assert "pad with 2 and 0 places at the ends here" in said
    assert "1 and 1 there" in said


def test_a_bias_is_added_inside_a_gate() -> None:
    """It is spread over the sum: no value before it has its shape."""
    square, bias = _WIDE[:, :6], np.arange(6.0) + 0.5

    def trainer(x: torch.Tensor) -> torch.Tensor:
        hidden = x @ torch.from_numpy(square) + torch.from_numpy(bias)
        return torch.tanh(x + torch.sigmoid(x * 0.7) * hidden)

    def port(x: jax.Array) -> jax.Array:
        return jnp.tanh(x + jax.nn.sigmoid(x * 0.7) * (x @ square) + bias)

    said = _both(trainer, port)
    assert "with that changed all values are equal" in said
    assert "test_program_causes.py:" in said
    assert _both(trainer, lambda x: jnp.tanh(x + jax.nn.sigmoid(x * 0.7) * (x @ square + bias))) == ""


@pytest.mark.parametrize("layers", [1, 3])
def test_both_ends_of_the_edges_are_exchanged_in_each_layer(layers: int) -> None:
    edges = np.array([[0, 1, 2, 3, 3], [1, 2, 0, 0, 4]])

    def trainer(x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        for _ in range(layers):
            x = torch.tanh(x + torch.zeros_like(x).index_add(0, e[1], x[e[0]]))
        return x

    def port(x: jax.Array, e: jax.Array) -> jax.Array:
        for _ in range(layers):
            x = jnp.tanh(x + jax.ops.segment_sum(x[e[1]], e[0], 5))
        return x

    said = _of_draws(trainer, port, [[x, edges] for x in _INPUTS])
    assert "the 2 parts as they are here" in said
    assert "in the order [1, 0] there" in said


def test_what_is_computed_otherwise_is_told_where_no_change_heals_it() -> None:
    """The mean of squares for the square of the mean: no change of one operation makes it."""

    def trainer(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        made = torch.tanh(a @ w)[:, 0]
        return torch.sin(b @ w).mean() + 0.3 * made.square().mean()

    def port(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
        made = jnp.tanh(a @ w)[:, 0]
        return jnp.sin(b @ w).mean() + 0.3 * made.mean() ** 2

    said = _of_draws(trainer, port, _DRAWS)
    here, _, there = said.partition(" here, ")
    assert here.startswith("computed otherwise: `mean(square(a), over axis 0 of [5])`"), said
    assert there.startswith("`(reduce_sum(a, over axis 0 of [5]) / 5)^2`"), said
    assert "a is what" in there


def test_two_programs_that_share_nothing_have_no_place_at_which_they_compute_otherwise() -> None:
    """The result of any program can be put in place of another's."""
    said = _of_draws(
        lambda a, b, w: torch.sin(a @ w + 1.0) ** 3, lambda a, b, w: jnp.exp(-jnp.cos((b @ w) ** 2 - 0.3)), _DRAWS
    )
    assert not said


def test_a_value_with_numbers_that_are_none_is_left_as_it_is() -> None:
    """It is equal to nothing, itself included, so that no operation of its line is found to take it."""
    value = np.array([[1.0, np.nan], [2.0, 3.0]])
    one = ProgramOperation("add", "mine.py:3", (value, np.ones((2, 2))), (value + 1.0,))
    said = [change.own for _, change in operands_of([one], [0], [[0]], {})]
    assert any("axes 0 and 1" in words or "1.0, 1.0" in words for words in said), "the other value is looked at"
