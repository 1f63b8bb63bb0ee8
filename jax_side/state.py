"""The state on the devices, and its translation to and from the neutral TrainingState."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from jax_side.model import build_model
from jax_side.numerics import x64
from jax_side.optimizer import slots
from jax_side.scaler import ScalerState
from parity.errors import StateError
from parity.spec import AdamSpec, RunSpec
from parity.state import TrainingState, take_count, take_scale
from parity.twins import Layout, Row, check_leaves, from_jax, initial_buffers, initial_params, to_jax

__all__ = ["DeviceState", "abstract_model", "export_arrays", "import_arrays", "initial_model_state", "stored_names"]

NATIVE = "rng.native.jax."
"""Prefix of the leaves of JAX's own streams."""


class DeviceState(NamedTuple):
    """Everything a step reads and writes on the devices."""

    params: nnx.State
    buffers: nnx.State
    rngs: nnx.State
    """Native dropout streams; empty with the shared generator."""
    optimizer: Any
    scaler: ScalerState | None


@lru_cache(maxsize=8)  # a process builds many trainers of few specs
def abstract_model(spec: RunSpec) -> tuple[Any, nnx.State, nnx.State, nnx.State]:
    """Return graph definition, parameters, buffers and native RNG streams: shapes and dtypes, no values."""
    with x64(spec.precision):
        abstract = nnx.eval_shape(lambda: build_model(spec))
    graphdef, params, buffers, rngs = nnx.split(abstract, nnx.Param, nnx.BatchStat, nnx.RngState)
    return graphdef, params, buffers, rngs


def initial_model_state(spec: RunSpec, layout: Layout) -> tuple[Any, nnx.State, nnx.State, nnx.State]:
    """Return graph definition, parameters, buffers and native RNG streams at the start.

    The module is built abstractly (`nnx.eval_shape`), so no placeholder value is ever computed; only the RNG
    streams of native dropout come from a real build.

    Args:
        spec: The run, for its model and its seed.
        layout: The run's.
    """
    graphdef, params, buffers, rngs = abstract_model(spec)
    params = _fill(params, to_jax(layout.params, initial_params(spec.model, spec.seed), "model.params"))
    buffers = _fill(buffers, to_jax(layout.buffers, initial_buffers(spec.model), "model.buffers"))
    if nnx.to_flat_state(rngs):
        rngs = nnx.state(build_model(spec), nnx.RngState)
    return graphdef, params, buffers, rngs


def export_arrays(
    layout: Layout, state: DeviceState, *, copy: bool = True
) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
    """Return the arrays of the neutral state, and the scalars that live on the devices.

    Args:
        layout: The run's.
        state: What to export; its arrays may be on the host.
        copy: Whether the arrays outlive a donation of the state; without, they may be views of it, which JAX keeps
            alive by not reusing the buffers as long as they are.
    """

    def flat(part: nnx.State) -> dict[tuple[str | int, ...], NDArray[np.generic]]:
        return {path: value.copy() if copy else value for path, value in _flat(part).items()}

    def named(group: str, rows: tuple[Row, ...], part: nnx.State) -> dict[str, NDArray[np.generic]]:
        leaves = from_jax(rows, flat(part), group, views=not copy)
        return {f"{group}.{name}": value for name, value in leaves.items()}

    arrays = named("model.params", layout.params, state.params)
    arrays |= named("model.buffers", layout.buffers, state.buffers)
    for slot, (part, name) in slots(layout.spec.optimizer).items():
        arrays |= named(f"optimizer.{slot}", layout.params, getattr(state.optimizer[part], name))
    arrays |= {NATIVE + _dotted(path): value for path, value in flat(state.rngs).items()}
    scalars: dict[str, Any] = {}
    if isinstance(layout.spec.optimizer, AdamSpec):
        scalars["optimizer.step"] = int(state.optimizer["adam"].count)
    if state.scaler is not None:
        scalars["scaler.scale"] = float(state.scaler.scale)
        scalars["scaler.growth_tracker"] = int(state.scaler.growth_tracker)
    return arrays, scalars


def stored_names(layout: Layout, leaves: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return neutral leaf to the Orbax item that holds it and the name of its array there.

    Args:
        layout: The run's.
        leaves: The leaves of a state of it; names the native streams, which the layout alone does not.
    """
    spec = layout.spec
    names = {f"model.params.{row.name}": ("params", f"{_dotted(row.jax)}.value") for row in layout.params}
    names |= {f"model.buffers.{row.name}": ("model_state", f"{_dotted(row.jax)}.value") for row in layout.buffers}
    for slot, (part, field) in slots(spec.optimizer).items():
        for row in layout.params:
            array = f"{part}.{field}.{_dotted(row.jax)}.value"
            names[f"optimizer.{slot}.{row.name}"] = ("optimizer", array)
    if isinstance(spec.optimizer, AdamSpec):
        names["optimizer.step"] = ("optimizer", "adam.count")
    if spec.scaled:
        names |= {f"scaler.{name}": ("scaler", name) for name in ScalerState._fields}
    native = [leaf for leaf in leaves if leaf.startswith(NATIVE)]
    return names | {leaf: ("rng", f"{leaf.removeprefix(NATIVE)}.value") for leaf in native}


def import_arrays(layout: Layout, state: DeviceState, neutral: TrainingState) -> tuple[DeviceState, dict[str, Any]]:
    """Return the values that make a state hold a neutral one, and the scalars that remain for the host.

    Args:
        layout: The run's.
        state: Gives structure, shapes and dtypes; it is not changed.
        neutral: What it should hold.

    Raises:
        StateError: A leaf is missing, unexpected, or of another dtype or shape.
    """
    if any(leaf.startswith("rng.native.torch") for leaf in neutral.arrays):
        raise StateError("rng.native", "a native PyTorch stream has no meaning in JAX; use dropout.generator=shared")
    spec, taken = layout.spec, set[str]()

    def take(like: nnx.State, rows: tuple[Row, ...], group: str) -> nnx.State:
        leaves = neutral.group(group)
        taken.update(f"{group}.{name}" for name in leaves)
        check_leaves(rows, leaves, group, layout.dtype)
        return _fill(like, to_jax(rows, leaves, group))

    params = take(state.params, layout.params, "model.params")
    buffers = take(state.buffers, layout.buffers, "model.buffers")
    optimizer, scalars = state.optimizer.copy(), dict(neutral.scalars)
    for slot, (part, name) in slots(spec.optimizer).items():
        like = getattr(optimizer[part], name)
        optimizer[part] = optimizer[part]._replace(**{name: take(like, layout.params, f"optimizer.{slot}")})
    if isinstance(spec.optimizer, AdamSpec):
        count = jnp.int32(take_count(scalars, "optimizer.step"))
        optimizer["adam"] = optimizer["adam"]._replace(count=count)
    scaler = state.scaler
    if scaler is not None:
        tracker = jnp.int32(take_count(scalars, "scaler.growth_tracker"))
        scaler = ScalerState(jnp.float32(take_scale(scalars, "scaler.scale")), tracker)
    native, own = neutral.group("rng.native.jax"), _flat(state.rngs)
    taken.update(f"{NATIVE}{name}" for name in native)
    paths = {_dotted(path): path for path in own}
    if set(paths) != set(native):
        raise StateError("rng.native.jax", f"expected the streams {sorted(paths)}, got {sorted(native)}")
    for name, path in paths.items():
        expected, found = (f"{a.dtype} {a.shape}" for a in (own[path], native[name]))
        if expected != found:
            raise StateError(f"{NATIVE}{name}", f"expected {expected}, got {found}")
    rngs = _fill(state.rngs, {paths[name]: value for name, value in native.items()})
    for leaf in sorted(set(neutral.arrays) - taken):
        raise StateError(leaf, "unexpected leaf: this run has no such state")
    return DeviceState(params, buffers, rngs, optimizer, scaler), scalars


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
