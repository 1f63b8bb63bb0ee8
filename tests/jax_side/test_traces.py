"""Traces of JAX are computed again as JAX computes them, and functions inside of functions are found."""

import jax
import jax.numpy as jnp
import numpy as np

from jax_side.probes.traces import bind, body_of, evaluate_trace, inner_traces, inputs_read


@jax.jit
def inner(x):
    return jnp.sin(x) * 2.0


@jax.jit
def outer(x):
    return inner(x) + 1.0


def model(x):
    last, rows = jax.lax.scan(lambda carry, row: (carry + row, outer(carry)), jnp.zeros(3), x)
    return outer(last), rows


X = jnp.arange(12.0).reshape(4, 3)


def primitives(jaxpr):
    """Return the operations of a trace and of all traces inside of it."""
    inside = [one for eqn in jaxpr.eqns for trace in inner_traces(eqn) for one in primitives(trace)]
    return [*(eqn.primitive.name for eqn in jaxpr.eqns), *inside]


def test_a_trace_gives_what_the_function_gives():
    closed = jax.make_jaxpr(model)(X)
    numbers = []

    def apply(number, eqn, values):
        numbers.append(number)
        return bind(eqn, values)

    made = evaluate_trace(closed.jaxpr, closed.consts, [X], apply)
    for got, expected in zip(made, model(X), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert numbers == list(range(len(closed.jaxpr.eqns)))


def test_calls_are_opened_and_loops_are_not():
    closed = jax.make_jaxpr(model)(X)

    def apply(number, eqn, values):
        body = body_of(eqn)
        opened.append((eqn.primitive.name, body is not None))
        return bind(eqn, values) if body is None else evaluate_trace(*body, values, apply)

    opened = []
    made = evaluate_trace(closed.jaxpr, closed.consts, [X], apply)
    np.testing.assert_array_equal(made[0], model(X)[0])
    assert ("scan", False) in opened
    assert sum(is_call for _, is_call in opened) == 2
    assert ("sin", False) in opened


def test_traces_inside_of_calls_and_of_loops_are_found():
    assert primitives(jax.make_jaxpr(model)(X).jaxpr).count("sin") == 2


def test_an_operation_takes_other_parameters_in_place_of_its_own():
    (eqn,) = jax.make_jaxpr(lambda x: jax.lax.cumsum(x, axis=0))(X).jaxpr.eqns
    (other,) = bind(eqn, [X], {**eqn.params, "axis": 1})
    np.testing.assert_array_equal(other, np.cumsum(X, axis=1))
    np.testing.assert_array_equal(bind(eqn, [X])[0], np.cumsum(X, axis=0))


def test_what_no_output_can_follow_is_not_read():
    @jax.jit
    def both(x, y):
        return x * 2.0, y * 3.0

    def run(used, unused, looped, chosen):
        kept, _ = both(used, unused)
        _, rows = jax.lax.scan(lambda carry, row: (carry + looped, row + carry), jnp.zeros(()), kept)
        return rows + jnp.where(used > 100.0, chosen, 0.0)

    read = inputs_read(jax.make_jaxpr(run)(jnp.ones(3), jnp.ones(3), jnp.ones(()), jnp.ones(())).jaxpr)
    assert read == [True, False, True, True], "loops and branches read what they are given"
