"""Islands: where a traced function leaves float64 though all that it is given is float64, and it without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_side.probes.traces import bind, body_of, evaluate_trace, inner_traces
from parity.contract import Island

__all__ = ["apply_wide", "lifted"]

_NARROW = tuple(jnp.dtype(one) for one in ("float32", "bfloat16", "float16"))


def lifted(function: Callable[..., Any], found: dict[tuple[str, str], Island]) -> Callable[..., Any]:
    """Return a function that computes in float64 what another one computes in a narrower type by a cast.

    The function is traced, and each cast of its trace from float64 to a narrower type is left out, in the functions
    that it calls and in the bodies of its scans too; what follows then is computed in the type of its arguments. So
    is the softmax of `jax.nn.dot_product_attention`, which `nnx.MultiHeadAttention` calls: it is cast to float32
    (jax/_src/nn/functions.py, `_dot_product_attention_core`). What has no narrow type inside is called as it is, so
    that its own rules of differentiation hold.

    Args:
        function: Of arrays in containers.
        found: Gets each cast, at its place.
    """

    def call(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        flat = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args), found)
        return jax.tree.unflatten(jax.tree.structure(shapes), flat)

    return call


def _evaluate(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], found: dict[tuple[str, str], Island]
) -> list[Any]:
    """Return what a trace computes, without its casts to narrow types."""
    return evaluate_trace(jaxpr, consts, args, lambda _, eqn, values: apply_wide(eqn, values, found))


def apply_wide(eqn: Any, values: list[Any], found: dict[tuple[str, str], Island]) -> list[Any]:
    """Return what one equation of a trace gives."""
    name = eqn.primitive.name
    if name == "convert_element_type" and jnp.dtype(eqn.params["new_dtype"]) in _NARROW:
        if _dtype(values[0]) == np.float64:
            _note(eqn, f"cast to {jnp.dtype(eqn.params['new_dtype']).name}", found)
        return [jnp.asarray(values[0], jnp.float64)]
    if name == "reduce_precision":
        _note(eqn, "reduce_precision", found)
        return values[:1]
    narrow = any(map(_has_narrow, inner_traces(eqn))) or any(_dtype(one) in _NARROW for one in values)
    if narrow and (body := body_of(eqn)) is not None:
        return _evaluate(*body, values, found)
    if name == "scan" and narrow:
        return _scan(eqn.params, values, found)
    # literals too: a gradient begins with one divided by a count, and that is rounded in float32
    values = [jnp.asarray(one, jnp.float64) if _dtype(one) in _NARROW else one for one in values]
    params: dict[str, Any] = {
        key: jnp.dtype("float64") if _is_narrow(one) else one for key, one in eqn.params.items()
    }
    if narrow and params.get("update_jaxpr") is not None:  # of scatters: what joins an element with its update
        params["update_jaxpr"] = _widened(eqn.params["update_jaxpr"], eqn.params["update_consts"], found)
    return bind(eqn, values, params)


def _widened(jaxpr: Any, consts: Sequence[Any], found: dict[tuple[str, str], Island]) -> Any:
    """Return a function of scalars in a trace as one of float64."""
    scalars = [
        jax.ShapeDtypeStruct(one.aval.shape, jnp.float64 if one.aval.dtype in _NARROW else one.aval.dtype)
        for one in jaxpr.invars
    ]
    return jax.make_jaxpr(lambda *args: _evaluate(jaxpr, consts, args, found))(*scalars).jaxpr


def _scan(params: Mapping[str, Any], values: list[Any], found: dict[tuple[str, str], Island]) -> list[Any]:
    """Return what a scan gives whose body is evaluated without its casts."""
    consts, carried = params["num_consts"], params["num_carry"]
    body = params["jaxpr"]
    wide = [jnp.asarray(one, jnp.float64) if _dtype(one) in _NARROW else one for one in values]

    def step(carry: Any, sliced: Any) -> tuple[Any, Any]:
        made = _evaluate(body.jaxpr, body.consts, [*wide[:consts], *carry, *sliced], found)
        made = [jnp.asarray(one, jnp.float64) if _dtype(one) in _NARROW else one for one in made]
        return made[:carried], made[carried:]

    first, rest = wide[consts : consts + carried], wide[consts + carried :]
    last, stacked = jax.lax.scan(step, first, rest, length=params["length"], reverse=params["reverse"])
    return [*last, *stacked]


def _has_narrow(jaxpr: Any) -> bool:
    """Return whether anything in a trace is of a narrow type."""
    return any(
        any(getattr(one.aval, "dtype", None) in _NARROW for one in (*eqn.invars, *eqn.outvars))
        or any(map(_has_narrow, inner_traces(eqn)))
        for eqn in jaxpr.eqns
    )


def _dtype(value: Any) -> Any:
    return getattr(value, "dtype", None)


def _is_narrow(value: Any) -> bool:
    return isinstance(value, np.dtype | type) and value in _NARROW


def _note(eqn: Any, what: str, found: dict[tuple[str, str], Island]) -> None:
    where = _place(eqn)
    found.setdefault((where, what), Island(where, what, True))


def _place(eqn: Any) -> str:
    """Return file, line and function of the nearest frame that is of a layer, or of a model."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback else ():
        file = frame.file_name.replace("\\", "/")
        if ("/jax/" in file and "/jax/_src/nn/" not in file) or "/jax_side/" in file:
            continue
        short = "/".join(file.split("/")[-2:]) if "site-packages" not in file else file.split("site-packages/")[1]
        return f"{short}:{frame.line_num} {frame.function_name}"
    return "a place that the trace does not tell"
