"""Models for inference: the live model of a run at a checkpoint, and its parameters as items of their own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

from flax import nnx

from jax_side.checkpoint import Checkpoints
from jax_side.numerics import x64
from jax_side.optimizer import build_optimizer
from jax_side.placement import build_placement
from jax_side.scaler import build_scaler
from jax_side.state import DeviceState, initial_model_state
from parity.checkpoints import read_seal
from parity.errors import CheckpointError
from parity.policy import Which
from parity.runs import RunDirectory
from parity.spec import MeshSpec, from_toml, identity_of
from parity.storage import digest_files, list_files
from parity.twins import Layout, describe_data

__all__ = ["export_params", "load_model"]

MODEL = ("params", "model_state")
"""Orbax items that hold the model; the second only of a model that has buffers."""


def load_model(run: Path | str, which: Which = "best") -> nnx.Module:
    """Return the live model of a run at a checkpoint, in evaluation mode; nothing else of the process is changed.

    Every byte of the checkpoint is compared with its seal first, and every leaf of what was read.

    Args:
        run: The run directory; a run of this side.
        which: `best`, `latest` or a step; without a seal only a step.

    Returns:
        The model on the first device. Called with inputs alone, `model(x)` returns the logits without dropout, with
        running statistics: float [batch, classes] for inputs float [batch, features], or [batch, context, vocabulary]
        for bytes int32 [batch, context]. The type is that in which the run computes.

    Raises:
        RunDirectoryError: There is no run, or its records cannot be read.
        SpecError: Its `spec.toml` is no run specification.
        DamagedError: The checkpoint is not what was sealed.
        CheckpointError: There is no such checkpoint, or it was saved by another side.

    Numerics: the trainer's own validation is compiled as a whole, and may round in another order than a call outside
    of `jax.jit`. The model of a float64 run is called under `jax.enable_x64(True)`.

    Example:
        >>> import jax.numpy as jnp, tempfile, jax_side
        >>> from parity.spec import preset
        >>> with tempfile.TemporaryDirectory() as run:
        ...     trainer = jax_side.build(preset("mlp-digits"), Path(run))
        ...     _ = Path(run, "spec.toml").write_text(trainer.identity.text)
        ...     trainer.save(0.5)
        ...     trainer.close()
        ...     load_model(run)(jnp.zeros((1, 64))).shape
        (1, 10)
    """
    directory = RunDirectory(Path(run))
    spec = replace(from_toml(directory.identity_text()), mesh=MeshSpec())
    spec_hash = directory.spec_hash() or identity_of(spec).hash(describe_data(spec)["digest"])
    layout, placement = Layout.of(spec), build_placement(spec)
    with x64(spec.precision):
        graphdef, params, buffers, rngs = initial_model_state(spec, layout)
        optimizer = build_optimizer(spec)
        state = placement.put(DeviceState(params, buffers, rngs, optimizer.init(params), build_scaler(spec)))
        checkpoints = Checkpoints(layout, directory.path, spec_hash, placement)
        content = checkpoints.restore(which, state).state
        checkpoints.close()
        model = cast(nnx.Module, nnx.merge(graphdef, content.params, content.buffers, content.rngs))
    model.eval()
    return model


def export_params(checkpoint: Path, dest: Path) -> None:
    """Copy the model of a checkpoint, its Orbax items of parameters and buffers alone, to a directory: for inference.

    Each item carries the label of the checkpoint (step, epoch, best metric and config) as its custom metadata, and
    `orbax.checkpoint.PyTreeCheckpointer().restore(dest / "params")` reads it.

    Args:
        checkpoint: A checkpoint of this side, which was verified.
        dest: The new directory.

    Raises:
        CheckpointError: The name is that of a file, the checkpoint has no valid seal, or the copy does not hold the
            bytes that were sealed.
        OSError: The directory exists already, or cannot be written.
    """
    if dest.suffix in (".pt", ".safetensors"):
        raise CheckpointError(
            f"{dest}: parameters of the JAX side are a directory of Orbax items; give DEST no suffix"
        )
    dest.mkdir()
    for item in MODEL:
        if (checkpoint / item).is_dir():
            shutil.copytree(checkpoint / item, dest / item)
    sealed = {name: d for name, d in read_seal(checkpoint).files.items() if name.partition("/")[0] in MODEL}
    if digest_files(dest, list_files(dest)) != sealed:
        raise CheckpointError(f"{dest} does not hold the bytes that were sealed")
