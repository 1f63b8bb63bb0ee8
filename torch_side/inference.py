"""Models for inference: the live model of a run at a checkpoint, and its parameters as a file of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parity.checkpoints import LABEL
from parity.errors import CheckpointError, MissingFrameworkError
from parity.policy import Which
from parity.runs import RunDirectory
from parity.spec import MeshSpec, from_toml, identity_of
from parity.twins import Layout, describe_data
from torch_side.checkpoint import Checkpoints
from torch_side.formats.content import STATE, read_content
from torch_side.model import build_model
from torch_side.optimizer import build_optimizer, build_scheduler
from torch_side.placement import build_placement
from torch_side.scaler import build_scaler
from torch_side.state import LiveState

__all__ = ["export_params", "load_model"]

SAFETENSORS = ".safetensors"


def load_model(run: Path | str, which: Which = "best") -> nn.Module:
    """Return the live model of a run at a checkpoint, in evaluation mode; nothing else of the process is changed.

    Every byte of the checkpoint is compared with its seal first, and every leaf of what was read.

    Args:
        run: The run directory; a run of this side.
        which: `best`, `latest` or a step; without a seal only a step.

    Returns:
        The model on the first GPU if there is one, else on the CPU. Called with inputs alone, `model(x)` returns the
        logits without dropout, with running statistics: float [batch, classes] for inputs float [batch, features], or
        [batch, context, vocabulary] for bytes int64 [batch, context]. The type is that of the run's parameters.

    Raises:
        RunDirectoryError: There is no run, or its records cannot be read.
        SpecError: Its `spec.toml` is no run specification.
        DamagedError: The checkpoint is not what was sealed.
        CheckpointError: There is no such checkpoint, or it was saved by another side.

    Numerics: equal to the trainer's own validation bit for bit, on the same device with the same number of threads; a
    bfloat16 or float16 run validates under `torch.autocast`, which is left to the caller.

    Example:
        >>> import tempfile, torch_side
        >>> from parity.spec import preset
        >>> with tempfile.TemporaryDirectory() as run:
        ...     trainer = torch_side.build(preset("mlp-digits"), Path(run))
        ...     _ = Path(run, "spec.toml").write_text(trainer.identity.text)
        ...     trainer.save(0.5)
        ...     trainer.close()
        ...     load_model(run)(torch.zeros(1, 64)).shape
        torch.Size([1, 10])
    """
    directory = RunDirectory(Path(run))
    spec = from_toml(directory.identity_text())
    spec_hash = directory.spec_hash() or identity_of(spec).hash(describe_data(spec)["digest"])
    layout, placement = Layout.of(spec), build_placement(replace(spec, mesh=MeshSpec()))  # of one process, whole
    with torch.random.fork_rng([]):  # placeholders are drawn
        model = build_model(spec).to(placement.device)
    optimizer = build_optimizer(spec, model, placement.device)
    state = LiveState(
        model=model,
        optimizer=optimizer,
        scheduler=build_scheduler(spec, optimizer),
        scaler=build_scaler(spec, placement.device),
        device=placement.device,
    )
    restored = Checkpoints(layout, directory.path, spec_hash, placement).restore(which, state)
    model.load_state_dict(restored.state["model"], strict=True)
    return model.eval()


def export_params(checkpoint: Path, dest: Path) -> None:
    """Write the model of a checkpoint, parameters and buffers alone, to a file: for inference.

    A file whose name ends with `.safetensors` carries the label of the checkpoint (step, epoch, best metric, config)
    as JSON in its metadata; any other is a state dict of `torch.save`: `model.load_state_dict(torch.load(dest))`.

    Args:
        checkpoint: A checkpoint of this side, which was verified.
        dest: The new file.

    Raises:
        CheckpointError: The checkpoint cannot be read, or the file does not hold what was written.
        MissingFrameworkError: The library safetensors is not installed.
    """
    content = read_content(checkpoint / STATE, torch.device("cpu"))
    model = content["model"]
    if dest.suffix == SAFETENSORS:
        try:
            from safetensors.torch import load_file, save_file
        except ImportError as error:
            raise MissingFrameworkError("torch", "safetensors") from error
        label = {name: value for name, value in content.items() if name in LABEL}
        save_file(model, dest, {name: json.dumps(value) for name, value in label.items()})
        written = load_file(dest)
    else:
        torch.save(model, dest)
        written = read_content(dest, torch.device("cpu"))
    if not _equal(model, written):
        raise CheckpointError(f"{dest} does not hold the parameters that were written")


def _equal(ours: Mapping[str, Tensor], theirs: Mapping[str, Any]) -> bool:
    """Return whether two state dicts hold the same tensors, bit for bit."""

    def same(a: Tensor, b: Tensor) -> bool:
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()

    return ours.keys() == theirs.keys() and all(same(value, theirs[name]) for name, value in ours.items())
