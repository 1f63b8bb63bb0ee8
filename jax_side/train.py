"""The JAX trainer: a chunk of steps is one jitted, donated `lax.scan` on a mesh; Python runs only between chunks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from jax_side.checkpoint import Checkpoints
from jax_side.dropout import mask_keys
from jax_side.model import loss_function
from jax_side.numerics import Dtypes, configure, dtypes, x64
from jax_side.optimizer import build_optimizer
from jax_side.placement import Placement, build_placement
from jax_side.scaler import all_finite, build_scaler, unscale, update_scaler
from jax_side.sharding import gathered_shardings, put_state, splits_state, state_shardings
from jax_side.state import DeviceState, abstract_model, export_arrays, import_arrays, initial_model_state
from parity.contract import Validation
from parity.spec import ExecutionSpec, RunSpec, SaveSpec
from parity.state import TrainingState
from parity.twins import Chunk, StepInputs, StepOutputs, Twin

__all__ = ["JaxTrainer", "build"]

SHARED = 8
"""Runs of different specs whose programs are kept for the next trainer of an equal one."""


class Placed(NamedTuple):
    """A chunk on the devices, leading axis: steps."""

    inputs: jax.Array
    targets: jax.Array
    index: jax.Array
    lr: jax.Array
    """[steps], or [steps, groups] and the momenta of the groups behind."""
    loss_multiplier: jax.Array
    host: StepInputs


def build(spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> JaxTrainer:
    """Build a trainer at step 0.

    Args:
        spec: The run.
        directory: Run directory for checkpoints, or None for a trainer that cannot save.
        attempt: Process starts of this run before this one.

    Raises:
        SpecError: The spec asks for more devices than there are, for data that are not there, or for more memory than
            this machine has.
        StateError: The reader is `grain`, and Grain is not installed.
    """
    configure(spec)
    return JaxTrainer(spec, directory, attempt)


class Programs:
    """What a run computes on the devices: a step, a chunk of steps, an evaluation, each compiled at its first call.

    They hold no state, so the trainers of a process that compute the same share them (`programs`), and compile once.

    Args:
        spec: The run; where it stops, validates and saves is not known here.
        placement: Its devices.
    """

    def __init__(self, spec: RunSpec, placement: Placement) -> None:
        self.spec, self.types = spec, dtypes(spec.precision)
        self.graphdef = abstract_model(spec)[0]
        self.optimizer = build_optimizer(spec)
        self._loss_of = loss_function(spec)
        self._placement = placement
        self.evaluate = jax.jit(self._evaluate, out_shardings=placement.replicated)
        self._of: dict[Any, tuple[Any, Any]] = {}

    def of(self, state: DeviceState) -> tuple[Any, Any]:
        """Return the functions of one step and of a chunk of steps, for states of this structure.

        A step takes and returns a state, a chunk its leaves. Each device keeps its part of the state; every process
        reads the losses.
        """
        structure = jax.tree.structure(state)
        if structure not in self._of:
            placed, everywhere = state_shardings(self._placement, state), self._placement.replicated
            scan = partial(self._scan_steps, structure)
            self._of[structure] = (
                jax.jit(self._train_step, donate_argnums=0, out_shardings=(placed, everywhere)),
                jax.jit(scan, donate_argnums=0, out_shardings=(jax.tree.leaves(placed), everywhere)),
            )
        return self._of[structure]

    # One step, phase by phase; the twin is TorchTrainer._train_step.

    def _train_step(self, state: DeviceState, xs: tuple[jax.Array, ...]) -> tuple[DeviceState, tuple[jax.Array, ...]]:
        inputs, targets, index, lr, multiplier = xs
        scale = state.scaler.scale if state.scaler else jnp.ones((), self.types.exact)

        # Forward and backward, micro-batch by micro-batch; gradients add up as PyTorch's .grad does.
        def add_micro(carry: Any, micro: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
            grads, buffers, rngs = carry
            x, y, number = micro
            key = mask_keys(self.spec.seed, index, number)
            loss_of = partial(self._loss, buffers=buffers, rngs=rngs, x=x, y=y, key=key, factor=scale * multiplier)
            (_, (loss, buffers, rngs)), new = jax.value_and_grad(loss_of, has_aux=True)(self._gathered(state.params))
            return (jax.tree.map(jnp.add, grads, self._scattered(new)), buffers, rngs), loss

        zeros = jax.tree.map(jnp.zeros_like, state.params)
        micros = (inputs, targets, jnp.arange(self.spec.accumulation))
        (grads, buffers, rngs), losses = jax.lax.scan(add_micro, (zeros, state.buffers, state.rngs), micros)
        loss = losses.sum() / self.spec.accumulation

        # Unscale before the norm, and look for overflows.
        finite = jnp.asarray(True)
        if state.scaler is not None:
            finite = all_finite(grads)
            grads = unscale(grads, scale)
        norm = optax.tree.norm(grads)

        # Update; a skipped step keeps parameters and moments, never the buffers of its forward pass.
        updates, optimizer = self.optimizer.update(grads, state.optimizer, state.params, lr=lr)
        params = optax.apply_updates(state.params, updates)
        scaler = state.scaler
        if scaler is not None:
            keep = partial(jax.tree.map, lambda new, old: jnp.where(finite, new, old))
            params, optimizer = keep(params, state.params), keep(optimizer, state.optimizer)
            scaler = update_scaler(scaler, self.spec.scaler, finite)
        return DeviceState(params, buffers, rngs, optimizer, scaler), (loss, norm, scale, ~finite)

    def _gathered(self, params: Any) -> Any:
        """Return parameters as a forward pass reads them: along `fsdp` every device has all, for its own samples."""
        if self.spec.mesh.fsdp == 1:
            return params
        return jax.lax.with_sharding_constraint(params, gathered_shardings(self._placement, params))

    def _scattered(self, grads: Any) -> Any:
        """Return gradients as their parameters are kept: the sum over all samples, each device its part.

        The barrier keeps the two shardings apart. Without it XLA computes the gradient of an embedding as its table
        is kept, for which it copies all activations to every device, and warns that it does (jax 0.10).
        """
        if not splits_state(self.spec.mesh):
            return grads
        if self.spec.mesh.fsdp > 1:
            grads = jax.lax.optimization_barrier(self._gathered(grads))
        return jax.lax.with_sharding_constraint(grads, state_shardings(self._placement, grads))

    def _loss(self, params: Any, *, buffers: Any, rngs: Any, x: Any, y: Any, key: Any, factor: Any) -> Any:
        model = nnx.merge(self.graphdef, params, buffers, rngs, copy=True)  # its own variables: BatchNorm writes them
        loss = self._loss_of(model(x, key, train=True), y, self.types)
        scaled = loss / self.spec.accumulation * factor.astype(self.types.exact)
        return scaled, (loss, nnx.state(model, nnx.BatchStat), nnx.state(model, nnx.RngState))

    def _scan_steps(self, structure: Any, leaves: list[jax.Array], xs: tuple[jax.Array, ...]) -> Any:
        state, outputs = jax.lax.scan(self._train_step, jax.tree.unflatten(structure, leaves), xs)
        return jax.tree.leaves(state), outputs

    def _evaluate(self, params: Any, buffers: Any, rngs: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        model = nnx.merge(self.graphdef, params, buffers, rngs)
        logits = model(x, None, train=False)
        correct = jnp.sum(jnp.argmax(logits, -1) == y) if self.spec.metric == "accuracy" else jnp.int32(0)
        return self._loss_of(logits, y, self.types), correct


def programs(spec: RunSpec, placement: Placement) -> Programs:
    """Return the programs of a run: those of an earlier trainer of this process, where it computed the same."""
    computed = replace(spec, name="any", steps=1, save=SaveSpec(), validate_every=1, execution=ExecutionSpec())
    return _programs(computed, placement)


@lru_cache(maxsize=SHARED)
def _programs(spec: RunSpec, placement: Placement) -> Programs:
    return Programs(spec, placement)


class JaxTrainer(Twin[DeviceState, DeviceState]):
    """The twin in JAX: Flax NNX, Optax, Orbax.

    Args:
        spec: The run.
        directory: Run directory for checkpoints, or None for a trainer that cannot save.
        attempt: Process starts of this run before this one.

    Raises:
        SpecError: As of `build`, which also prepares the process.
        StateError: As of `build`.
    """

    side = "jax"

    def __init__(self, spec: RunSpec, directory: Path | None, attempt: int) -> None:
        self.placement = build_placement(spec)
        self.types = dtypes(spec.precision)
        self._leaves: list[jax.Array] = []
        self._structure = jax.tree.structure(None)
        super().__init__(spec, attempt)
        with x64(spec.precision):
            self.programs = programs(spec, self.placement)
            _, params, buffers, rngs = initial_model_state(spec, self.layout)
            init, scaler = self.programs.optimizer.init, build_scaler(spec)
            if splits_state(spec.mesh):  # the slots are made where they belong, none is ever whole
                params = put_state(self.placement, params)
                init = jax.jit(init, out_shardings=state_shardings(self.placement, jax.eval_shape(init, params)))
            self.state = put_state(self.placement, DeviceState(params, buffers, rngs, init(params), scaler))
        self.checkpoints = Checkpoints(self.layout, directory, self.spec_hash, self.placement) if directory else None
        self.processes = jax.process_count()

    @property
    def state(self) -> DeviceState:
        """Return what is on the devices: kept as a flat list, which JAX takes apart without running Python."""
        state: DeviceState = jax.tree.unflatten(self._structure, self._leaves)
        return state

    @state.setter
    def state(self, new: DeviceState) -> None:
        self._leaves, structure = jax.tree.flatten(new)
        if structure != self._structure:
            self._structure = structure
            self._step_fn, self._chunk_fn = self.programs.of(new)

    def _run_chunk(self, placed: Placed, n: int) -> StepOutputs:
        with x64(self.spec.precision):
            if self.plan.metric_moves:  # a validation may have lowered the rates since the chunk was placed
                host = self.step_inputs(self.step, n)
                placed = placed._replace(host=host, lr=self.placement.put(_moved(host, self.types)))
            xs = placed[:-1]
            if self.spec.execution.jax == "scan":
                self._leaves, outputs = self._chunk_fn(self._leaves, xs)
                self.fetch_next(n)  # the chunk is still running
            else:
                state, rows = self.state, []
                try:
                    for i in range(n):
                        state, row = self._step_fn(state, tuple(x[i] for x in xs))
                        rows.append(jax.block_until_ready(row))  # forced devices deadlock when run ahead
                finally:
                    self.state = state
                outputs = tuple(np.stack(column) for column in zip(*rows, strict=True))
            loss, norm, scale, skipped = jax.device_get(outputs)  # host sync: once per chunk, all four at once
        return StepOutputs(loss=loss, lr=placed.host.lr, grad_norm=norm, loss_scale=scale, skipped=skipped)

    def _place(self, chunk: Chunk, step: int) -> Placed:
        host, spec = self.step_inputs(step, len(chunk.digests)), self.spec
        lead = (len(chunk.digests), spec.accumulation, spec.micro_batch)
        with x64(spec.precision):
            inputs, targets = _typed(chunk.inputs, self.types), _typed(chunk.targets, self.types)
            targets = targets.reshape(*lead, *targets.shape[2:])
            batches = (inputs.reshape(*lead, *inputs.shape[2:]), targets)
            numbers = [_moved(host, self.types), host.loss_multiplier.astype(self.types.params)]
            x, y, index, lr, multiplier = self.placement.put_chunk(batches, [host.index, *numbers])
            return Placed(x, y, index, lr, multiplier, host)

    def evaluate(self) -> Validation:
        """Measure on the validation samples, with running statistics and without dropout; see `Twin.take_metric`."""
        with x64(self.spec.precision):
            samples = (self.dataset.validation_inputs, self.dataset.validation_targets)
            x, y = self.placement.put(tuple(_typed(array, self.types) for array in samples))
            loss, correct = self.programs.evaluate(self.state.params, self.state.buffers, self.state.rngs, x, y)
            loss, correct = float(loss), int(correct)
        value = correct / y.size if self.spec.metric == "accuracy" else loss
        self.take_metric(value)
        return Validation(attempt=self.attempt, step=self.step, metric=self.spec.metric, value=value, loss=loss)

    def _context(self) -> AbstractContextManager[None]:
        return x64(self.spec.precision)

    def _export(self, *, copy: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        return export_arrays(self.layout, self.state, copy=copy)

    def _import(self, neutral: TrainingState) -> tuple[DeviceState, dict[str, Any]]:
        return import_arrays(self.layout, self.state, neutral)

    def _load(self, content: DeviceState) -> None:
        self.state = _take_over(self.state, put_state(self.placement, content))


def _moved(host: StepInputs, types: Dtypes) -> NDArray[np.generic]:
    """Return what the schedule gives each step, in the parameters' dtype."""
    moved = host.lr if host.moved is None else host.moved
    return moved.astype(types.params)


def _typed(samples: NDArray[np.generic], types: Dtypes) -> NDArray[np.generic]:
    """Return numbers in the parameters' dtype, classes and bytes as they are."""
    return samples.astype(types.params, copy=False) if samples.dtype.kind == "f" else samples


def _take_over(old: DeviceState, new: DeviceState) -> DeviceState:
    """Copy a state into the buffers of another; into new ones, if an error in a chunk lost those.

    What Orbax restored may lie in memory that JAX cannot donate.
    """
    try:
        taken = jax.block_until_ready(_into_buffers_of(old, new))
    except (RuntimeError, ValueError):  # donated and deleted, or the computation that was to fill it failed
        taken = jax.block_until_ready(jax.tree.map(jnp.copy, new))
    return cast(DeviceState, taken)


@partial(jax.jit, donate_argnums=0, keep_unused=True)
def _into_buffers_of(old: DeviceState, new: DeviceState) -> DeviceState:
    del old
    return new
