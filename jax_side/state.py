"""The state on the devices, and its translation to and from the neutral TrainingState."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from jax_side.model import build_model
from jax_side.numerics import x64
from jax_side.optimizer import leaves_of, slots
from jax_side.scaler import ScalerState
from jax_side.sharding import annotated, splits_state
from jax_side.shards import NeutralPart, is_shared
from parity.errors import StateError
from parity.spec import RunSpec
from parity.state import TrainingState, take_count, take_scale
from parity.twins import (
    Layout,
    Row,
    check_leaves,
    from_jax,
    initial_buffers,
    initial_params,
    one_count,
    own_count,
    table,
    to_jax,
)

__all__ = [
    "DeviceState",
    "abstract_model",
    "export_arrays",
    "import_arrays",
    "initial_model_state",
    "neutral_parts",
    "stored_names",
]

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
    if splits_state(spec.mesh):  # else no names: `load_model` gives the variables to people
        rows = table(spec.model)
        params, buffers = annotated(params, rows), annotated(buffers, rows)
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
    layout: Layout, state: DeviceState, *, copy: bool = True, shared: bool = True
) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
    """Return the arrays of the neutral state, and the scalars that live on the devices.

    Args:
        layout: The run's.
        state: What to export; its arrays may be on the host.
        copy: Whether the arrays outlive a donation of the state; without, they may be views of it, which JAX keeps
            alive by not reusing the buffers as long as they are.
        shared: Whether leaves that lie in several processes are there too: gathered, whole, in each of them, which
            all have to call it then. Without, they are left out; `digest_shards` has their digests.
    """

    def flat(part: nnx.State) -> dict[tuple[str | int, ...], NDArray[np.generic]]:
        return {path: value.copy() if copy else value for path, value in _flat(part, shared).items()}

    def named(group: str, rows: tuple[Row, ...], part: nnx.State) -> dict[str, NDArray[np.generic]]:
        found = flat(part)
        if not shared:
            rows = tuple(row for row in rows if row.jax in found)
        leaves = from_jax(rows, found, group, views=not copy)
        return {f"{group}.{name}": value for name, value in leaves.items()}

    arrays: dict[str, NDArray[np.generic]] = {}
    for part in neutral_parts(layout, state):
        arrays |= named(*part)
    arrays |= {NATIVE + _dotted(path): value for path, value in flat(state.rngs).items()}
    scalars: dict[str, Any] = {}
    if layout.counted:
        scalars["optimizer.step"] = _count(layout, state)
    if state.scaler is not None:
        scalars["scaler.scale"] = float(state.scaler.scale)
        scalars["scaler.growth_tracker"] = int(state.scaler.growth_tracker)
    return arrays, scalars


def neutral_parts(layout: Layout, state: DeviceState) -> list[NeutralPart]:
    """Return the groups of arrays that both sides have: group, rows, and the variables that hold them."""
    parts = [("model.params", layout.params, state.params), ("model.buffers", layout.buffers, state.buffers)]
    slots = [(one.slot.name, one.rows) for one in layout.slots]
    return parts + [(f"optimizer.{name}", rows, _slot(layout, state.optimizer, name)) for name, rows in slots]


def stored_names(layout: Layout, leaves: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return neutral leaf to the Orbax item that holds it and the name of its array there.

    Args:
        layout: The run's.
        leaves: The leaves of a state of it; names the native streams, which the layout alone does not.
    """
    spec = layout.spec
    names = {f"model.params.{row.name}": ("params", f"{_dotted(row.jax)}.value") for row in layout.params}
    names |= {f"model.buffers.{row.name}": ("model_state", f"{_dotted(row.jax)}.value") for row in layout.buffers}
    for one, (part, field) in zip(layout.slots, slots(layout).values(), strict=True):
        field = field if layout.former else f"slots.{field}"
        for row in one.rows:
            array = f"{part}.{field}.{_dotted(row.jax)}.value"
            names[f"optimizer.{one.slot.name}.{row.name}"] = ("optimizer", array)
    if layout.counted:
        names["optimizer.step"] = ("optimizer", "adam.count" if layout.former else "optimizer.step")
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
    taken = set[str]()

    def take(like: nnx.State, rows: tuple[Row, ...], group: str, dtype: str = layout.dtype) -> nnx.State:
        leaves = neutral.group(group)
        taken.update(f"{group}.{name}" for name in leaves)
        check_leaves(rows, leaves, group, dtype)
        return _fill(like, to_jax(rows, leaves, group))

    params = take(state.params, layout.params, "model.params")
    buffers = take(state.buffers, layout.buffers, "model.buffers")
    optimizer, scalars = state.optimizer, dict(neutral.scalars)
    for one in layout.slots:
        like, name = _slot(layout, optimizer, one.slot.name), one.slot.name
        optimizer = _with_slot(layout, optimizer, name, take(like, one.rows, f"optimizer.{name}", one.dtype))
    if layout.counted or not layout.former:  # new arrays in any case: those of the state may be donated
        count = take_count(scalars, "optimizer.step") if layout.counted else 0
        optimizer = _with_count(layout, state, optimizer, count)
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


def _slot(layout: Layout, optimizer: Any, name: str) -> nnx.State:
    """Return the tree of a slot in the state of a run's optimizer."""
    part, field = slots(layout)[name]
    tree: nnx.State = getattr(optimizer[part], field) if layout.former else optimizer[part].slots[field]
    return tree


def _with_slot(layout: Layout, optimizer: Any, name: str, tree: nnx.State) -> Any:
    """Return the state of a run's optimizer with another tree of a slot."""
    part, field = slots(layout)[name]
    own = optimizer[part]
    changed = own._replace(**{field: tree} if layout.former else {"slots": {**own.slots, field: tree}})
    return _with_part(optimizer, part, changed)


def _count(layout: Layout, state: DeviceState) -> int:
    """Return the updates that every parameter has had."""
    if layout.former:
        return int(state.optimizer["adam"].count)
    names, _, _ = leaves_of(layout).flatten(state.params)
    counts = np.asarray(state.optimizer["optimizer"].step).astype(int).tolist()
    return one_count(layout.spec.optimizer, layout.params, dict(zip(names, counts, strict=True)))


def _with_count(layout: Layout, state: DeviceState, optimizer: Any, count: int) -> Any:
    """Return the state of a run's optimizer after so many updates of every parameter."""
    if layout.former:
        return _with_part(optimizer, "adam", optimizer["adam"]._replace(count=jnp.int32(count)))
    names, _, _ = leaves_of(layout).flatten(state.params)
    own, rows = optimizer["optimizer"], {row.name: row for row in layout.params}
    counts = [own_count(layout.spec.optimizer, rows[name], count) for name in names]
    step = jnp.asarray(counts, own.step.dtype)
    return _with_part(optimizer, "optimizer", own._replace(count=jnp.int32(count), step=step))


def _with_part(optimizer: Any, part: str, new: Any) -> Any:
    """Return the state of an optimizer with another part, of the type it has: JAX tells dicts from ordered ones."""
    changed = optimizer.copy()
    changed[part] = new
    return changed


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def _flat(state: nnx.State, shared: bool = True) -> dict[tuple[str | int, ...], NDArray[np.generic]]:
    """Return path to host array, on a CPU a view of the device's; typed PRNG keys as their words."""
    leaves = [(tuple(path), leaf.get_value()) for path, leaf in nnx.to_flat_state(state)]
    kept = [(path, value) for path, value in leaves if value is not None and (shared or not is_shared(value))]
    return {path: _host(value) for path, value in kept}


def _host(value: jax.Array) -> NDArray[np.generic]:
    if is_shared(value):
        return np.asarray(multihost_utils.process_allgather(value, tiled=True))
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def _fill(like: nnx.State, leaves: Mapping[tuple[str | int, ...], NDArray[np.generic]]) -> nnx.State:
    """Return a state with the structure and types of `like` and the given values, which were checked before."""
    filled = []
    for path, leaf in nnx.to_flat_state(like):
        if (expected := leaf.get_value()) is None:  # of a parameter that has no such slot
            filled.append((path, leaf))
            continue
        value = leaves[tuple(path)]
        if jnp.issubdtype(expected.dtype, jax.dtypes.prng_key):
            new: jax.Array = jax.random.wrap_key_data(jnp.array(value), impl=jax.random.key_impl(expected))
        else:
            assert value.shape == expected.shape, path
            new = jnp.array(value, expected.dtype)
        filled.append((path, leaf.replace(new)))
    return nnx.from_flat_state(filled)
