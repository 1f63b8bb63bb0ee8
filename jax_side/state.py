"""Between the device state and the neutral TrainingState, through the two-way table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from jax_side.model import build_model
from jax_side.optimizer import slots
from jax_side.scaler import ScalerState
from parity.contract import TrainingState, take_count, take_scale
from parity.errors import StateError
from parity.spec import AdamSpec, RunSpec
from parity.twins import Row, check_leaves, from_jax, initial_buffers, initial_params, table, to_jax

if TYPE_CHECKING:
    from jax_side.train import DeviceState

__all__ = ["export_arrays", "import_arrays", "initial_model_state", "stored_names"]

Rows = tuple[Row, ...]

NATIVE = "rng.native.jax."
"""Prefix of the leaves of JAX's own streams."""


def initial_model_state(spec: RunSpec, rows: Rows) -> tuple[Any, nnx.State, nnx.State, nnx.State]:
    """Return graph definition, parameters, buffers and native RNG streams at the start.

    The module is built abstractly (`nnx.eval_shape`), so no placeholder value is ever computed; only the RNG
    streams of native dropout come from a real build.
    """
    abstract = nnx.eval_shape(lambda: build_model(spec))
    graphdef, params, buffers, rngs = nnx.split(abstract, nnx.Param, nnx.BatchStat, nnx.RngState)
    start = initial_params(spec.model, spec.seed)
    params = _fill(params, to_jax(tuple(r for r in rows if r.group == "params"), start, "model.params"))
    buffer_rows = tuple(r for r in rows if r.group == "buffers")
    buffers = _fill(buffers, to_jax(buffer_rows, initial_buffers(spec.model), "model.buffers"))
    if nnx.to_flat_state(rngs):
        rngs = nnx.state(build_model(spec), nnx.RngState)
    return graphdef, params, buffers, rngs


def export_arrays(
    spec: RunSpec, param_rows: Rows, buffer_rows: Rows, state: DeviceState, *, copy: bool = True
) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
    """Return the arrays of the neutral state, and the scalars that live on the devices.

    Args:
        spec: The run.
        param_rows: Rows of the parameters and of every optimizer slot.
        buffer_rows: Rows of the buffers.
        state: What to export.
        copy: Whether the arrays outlive a donation of the state; without, they may be views of it, which JAX keeps
            alive by not reusing the buffers as long as they are.
    """

    def flat(part: nnx.State) -> dict[tuple[str | int, ...], NDArray[np.generic]]:
        return {path: value.copy() if copy else value for path, value in _flat(part).items()}

    arrays = _named("model.params", from_jax(param_rows, flat(state.params), "model.params", views=not copy))
    arrays |= _named("model.buffers", from_jax(buffer_rows, flat(state.buffers), "model.buffers", views=not copy))
    for slot, (part, name) in slots(spec.optimizer).items():
        leaves = flat(getattr(state.optimizer[part], name))
        arrays |= _named(f"optimizer.{slot}", from_jax(param_rows, leaves, f"optimizer.{slot}", views=not copy))
    for path, value in flat(state.rngs).items():
        arrays[NATIVE + _dotted(path)] = value
    scalars: dict[str, Any] = {}
    if isinstance(spec.optimizer, AdamSpec):
        scalars["optimizer.step"] = int(state.optimizer["adam"].count)
    if state.scaler is not None:
        scalars["scaler.scale"] = float(state.scaler.scale)
        scalars["scaler.growth_tracker"] = int(state.scaler.growth_tracker)
    return arrays, scalars


def stored_names(spec: RunSpec, leaves: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return neutral leaf to the Orbax item that holds it and the name of its array there.

    Args:
        spec: The run.
        leaves: The leaves of a state of it; names the native streams, which the spec alone does not.
    """
    rows = table(spec.model)
    items = {"params": "params", "buffers": "model_state"}
    names = {f"model.{row.group}.{row.name}": (items[row.group], f"{_dotted(row.jax)}.value") for row in rows}
    for slot, (part, field) in slots(spec.optimizer).items():
        for row in rows:
            if row.group == "params":
                array = f"{part}.{field}.{_dotted(row.jax)}.value"
                names[f"optimizer.{slot}.{row.name}"] = ("optimizer", array)
    if isinstance(spec.optimizer, AdamSpec):
        names["optimizer.step"] = ("optimizer", "adam.count")
    if spec.scaled:
        names |= {f"scaler.{name}": ("scaler", name) for name in ScalerState._fields}
    native = [leaf for leaf in leaves if leaf.startswith(NATIVE)]
    return names | {leaf: ("rng", f"{leaf.removeprefix(NATIVE)}.value") for leaf in native}


def import_arrays(
    spec: RunSpec, param_rows: Rows, buffer_rows: Rows, template: DeviceState, state: TrainingState
) -> tuple[DeviceState, dict[str, Any]]:
    """Return the device state that holds a neutral one, and the scalars left for the host.

    Every array must be taken by a row and fit the template in shape and dtype.
    """
    if any(leaf.startswith("rng.native.torch") for leaf in state.arrays):
        raise StateError("rng.native", "a native PyTorch stream has no meaning in JAX; use dropout.generator=shared")
    taken: set[str] = set()
    dtype = "float64" if spec.precision == "float64" else "float32"

    def take(like: nnx.State, rows: Rows, group: str) -> nnx.State:
        leaves = state.group(group)
        taken.update(f"{group}.{name}" for name in leaves)
        check_leaves(spec.model, rows, leaves, group, dtype)
        return _fill(like, to_jax(rows, leaves, group))

    params = take(template.params, param_rows, "model.params")
    buffers = take(template.buffers, buffer_rows, "model.buffers")
    optimizer, scalars = template.optimizer.copy(), dict(state.scalars)
    for slot, (part, name) in slots(spec.optimizer).items():
        like = getattr(optimizer[part], name)
        optimizer[part] = optimizer[part]._replace(**{name: take(like, param_rows, f"optimizer.{slot}")})
    if isinstance(spec.optimizer, AdamSpec):
        count = jnp.int32(take_count(scalars, "optimizer.step"))
        optimizer["adam"] = optimizer["adam"]._replace(count=count)
    scaler = template.scaler
    if scaler is not None:
        tracker = jnp.int32(take_count(scalars, "scaler.growth_tracker"))
        scaler = ScalerState(jnp.float32(take_scale(scalars, "scaler.scale")), tracker)
    native, like = state.group("rng.native.jax"), _flat(template.rngs)
    taken.update(f"rng.native.jax.{name}" for name in native)
    paths = {".".join(map(str, path)): path for path in like}
    if set(paths) != set(native):
        raise StateError("rng.native.jax", f"expected the streams {sorted(paths)}, got {sorted(native)}")
    for name, path in paths.items():
        expected, found = (f"{a.dtype} {a.shape}" for a in (like[path], native[name]))
        if expected != found:
            raise StateError(f"rng.native.jax.{name}", f"expected {expected}, got {found}")
    rngs = _fill(template.rngs, {paths[name]: value for name, value in native.items()})
    for leaf in sorted(set(state.arrays) - taken):
        raise StateError(leaf, "is left over: no row of the table takes it")
    return type(template)(params, buffers, rngs, optimizer, scaler), scalars


def _named(group: str, leaves: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    return {f"{group}.{name}": value for name, value in leaves.items()}


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def _flat(state: nnx.State) -> dict[tuple[str | int, ...], NDArray[np.generic]]:
    """Return path to host array, on a CPU a view of the device's; typed PRNG keys as their words."""
    return {tuple(path): _host(leaf[...]) for path, leaf in nnx.to_flat_state(state)}


def _host(value: jax.Array) -> NDArray[np.generic]:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def _fill(like: nnx.State, leaves: Mapping[tuple[str | int, ...], NDArray[np.generic]]) -> nnx.State:
    """Return a state with the structure and types of `like` and the given values, which were checked before."""
    filled = []
    for path, leaf in nnx.to_flat_state(like):
        expected, value = leaf.get_value(), leaves[tuple(path)]
        if jnp.issubdtype(expected.dtype, jax.dtypes.prng_key):
            new: jax.Array = jax.random.wrap_key_data(jnp.array(value), impl=jax.random.key_impl(expected))
        else:
            assert value.shape == expected.shape, path
            new = jnp.array(value, expected.dtype)
        filled.append((path, leaf.replace(new)))
    return nnx.from_flat_state(filled)
