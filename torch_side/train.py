"""The PyTorch trainer: the same phases in the same order; the host is synchronised once per chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parity.checkpoints import require_sealed
from parity.contract import TrainingState, Validation
from parity.errors import CheckpointError, StateError
from parity.policy import Saved, Which
from parity.spec import RunSpec
from parity.twins import Chunk, StepInputs, StepOutputs, Twin, factor, initial_buffers, initial_params
from torch_side.checkpoint import Checkpoints
from torch_side.dropout import Dropout, mask_keys
from torch_side.mesh import build_mesh
from torch_side.model import build_model, cross_entropy
from torch_side.numerics import autocast, configure, dtypes
from torch_side.optimizer import build_optimizer, build_scheduler, clip_by_global_norm
from torch_side.scaler import build_scaler
from torch_side.state import (
    Layout,
    adopt_model,
    check_file_state,
    export_arrays,
    import_arrays,
    load_file_state,
    neutral_arrays,
)

__all__ = ["TorchTrainer", "build"]


class Placed(NamedTuple):
    """A chunk on the device, leading axes: steps, micro-batches."""

    inputs: Tensor
    targets: Tensor
    keys: Tensor
    """int32 [steps, micro-batches, layers that draw from the shared generator, 2]."""
    host: StepInputs


def build(spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> TorchTrainer:
    """Build a trainer at step 0.

    Args:
        spec: The run.
        directory: Run directory for checkpoints, or None for a trainer that cannot save.
        attempt: Process starts of this run before this one.
    """
    configure(spec)
    return TorchTrainer(spec, directory, attempt)


class TorchTrainer(Twin):
    """The twin in PyTorch: eager or compiled, autocast, GradScaler, torch.optim."""

    side = "torch"

    def __init__(self, spec: RunSpec, directory: Path | None, attempt: int) -> None:
        self.device = build_mesh(spec)
        self.types = dtypes(spec.precision)
        super().__init__(spec, attempt)
        torch.manual_seed(spec.seed)  # only native dropout draws from it
        self.model = build_model(spec).to(self.device)
        adopt_model(self.model, self.rows, initial_params(spec.model, spec.seed), initial_buffers(spec.model))
        self.params = list(self.model.parameters())
        self.optimizer = build_optimizer(spec, self.model, self.device)
        self.scheduler = build_scheduler(spec, self.optimizer)
        self.scaler = build_scaler(spec, self.device)
        self.masks = sum(isinstance(module, Dropout) and module.shared for module in self.model.modules())
        compiled = spec.execution.torch == "compile"
        self._loss = torch.compile(self._plain_loss, dynamic=False) if compiled else self._plain_loss
        self.checkpoints = Checkpoints(spec, directory, self.spec_hash) if directory else None

    # One step, phase by phase; the twin is JaxTrainer._train_step.

    def _train_step(self, inputs: Tensor, targets: Tensor, keys: Tensor, poison: float) -> tuple[Any, ...]:
        scale = self.scaler.get_scale() if self.spec.scaled else 1.0  # host sync, float16 only

        # Forward and backward, micro-batch by micro-batch; gradients add up in .grad.
        for p in self.params:
            p.grad = None  # what zero_grad does, in 0.4 microseconds instead of 7
        losses = []
        for x, y, key in zip(inputs.unbind(), targets.unbind(), keys.unbind(), strict=True):
            loss = self._loss(x, y, key)
            losses.append(loss.detach())
            scaled = self.scaler.scale(_share(loss, self.spec.accumulation))
            (scaled * poison if self.spec.scaled else scaled).backward()
        loss = losses[0] if len(losses) == 1 else _share(torch.stack(losses).sum(), len(losses))

        # Unscale before the norm, and clip.
        self.scaler.unscale_(self.optimizer)
        norm = clip_by_global_norm(self.params, self.spec.clip_norm)

        # Update, unless the scaler withholds it; the schedule goes on either way.
        lr = self.optimizer.param_groups[0]["lr"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        skipped = self.spec.scaled and self.scaler.get_scale() < scale  # host sync, float16 only
        return loss, lr, norm, scale, skipped

    def _plain_loss(self, x: Tensor, y: Tensor, keys: Tensor) -> Tensor:
        with autocast(self.spec.precision, self.device):
            return cross_entropy(self.model(x, keys), y, self.types)

    def _run_chunk(self, placed: Placed, n: int) -> StepOutputs:
        if not self.model.training:  # setting it visits every module
            self.model.train()
        columns = placed.inputs.unbind(), placed.targets.unbind(), placed.keys.unbind(), placed.host.poison.tolist()
        rows = [self._train_step(*row) for row in zip(*columns, strict=True)]
        self.fetch_next(n)  # on a GPU the chunk is still running
        loss, lr, norm, scale, skipped = zip(*rows, strict=True)
        return StepOutputs(
            loss=torch.stack(loss).cpu().numpy(),  # host sync: once per chunk
            lr=np.array(lr),
            grad_norm=torch.stack(norm).cpu().numpy(),
            loss_scale=np.array(scale),
            skipped=np.array(skipped),
        )

    def _place(self, chunk: Chunk, step: int) -> Placed:
        host, spec = self.step_inputs(step, len(chunk.digests)), self.spec
        lead = (len(chunk.digests), spec.accumulation, spec.micro_batch)
        inputs, targets = torch.from_numpy(chunk.inputs), torch.from_numpy(chunk.targets).long()
        inputs = inputs.to(self.types.params) if inputs.is_floating_point() else inputs.long()
        return Placed(
            inputs.view(*lead, *inputs.shape[2:]).to(self.device, non_blocking=True),
            targets.view(*lead, *targets.shape[2:]).to(self.device, non_blocking=True),
            mask_keys(spec.seed, host.index, spec.accumulation, self.masks).to(self.device),
            host,
        )

    def evaluate(self) -> Validation:
        """Measure on the validation samples, with running statistics and without dropout."""
        inputs = torch.from_numpy(self.dataset.validation_inputs).to(self.device)
        targets = torch.from_numpy(self.dataset.validation_targets).to(self.device).long()
        inputs = inputs.to(self.types.params) if inputs.is_floating_point() else inputs.long()
        self.model.eval()
        with torch.no_grad(), autocast(self.spec.precision, self.device):
            logits = self.model(inputs, None)
            loss = float(cross_entropy(logits, targets, self.types))
        correct = int((logits.argmax(-1) == targets).sum())
        value = correct / targets.numel() if self.spec.metric == "accuracy" else loss
        return Validation(attempt=self.attempt, step=self.step, metric=self.spec.metric, value=value, loss=loss)

    def save(self, metric: float | None, *, saved_at: float | None = None) -> None:
        """Copy the state of this step, and start writing it as a checkpoint."""
        assert self.checkpoints is not None, "built without a directory"
        self.note_best(metric)
        self.checkpoints.save(self.step, self, self.host_scalars(), metric, saved_at)

    def restore(self, which: Which) -> int:
        """Load a checkpoint into this trainer; return its step."""
        assert self.checkpoints is not None, "built without a directory"
        step, saved, scalars, seal = self.checkpoints.restore(which, self.device)
        try:
            check_file_state(self, saved)
            arrays, counts = neutral_arrays(Layout.of(self), saved, lambda value: value.detach().cpu().numpy())
            require_sealed(seal, TrainingState(arrays=arrays, scalars={**scalars, **counts}))
            self.adopt_host_scalars(scalars, step)
        except StateError as error:
            raise CheckpointError(f"checkpoint of step {step} does not fit this run: {error}") from error
        load_file_state(self, saved)
        self.torn = False
        return step

    def wait(self) -> None:
        """Return when every save is durable."""
        if self.checkpoints is not None:
            self.checkpoints.wait()

    def close(self) -> None:
        """Wait; nothing else is held."""
        if self.checkpoints is not None:
            self.checkpoints.close()

    def export_state(self, *, copy: bool = True) -> TrainingState:
        """Return everything that must survive a stop, copied to the host; see `parity.contract.trainer`."""
        arrays, scalars = export_arrays(self, copy=copy)
        return TrainingState(arrays=arrays, scalars={**self.host_scalars(), **scalars})

    def import_state(self, state: TrainingState) -> None:
        """Become the given state, or raise a StateError and stay as before."""
        adopt, rest = import_arrays(self, state)
        self.adopt_host_scalars(rest)
        adopt()
        self.torn = False

    def _best_saved(self) -> Saved | None:
        return None if self.checkpoints is None else self.checkpoints.store.pointed("best")

    def _schedule_step(self) -> int:
        return int(self.scheduler.last_epoch)

    def _set_schedule_step(self, step: int) -> None:
        self.scheduler.last_epoch = step
        lr = self.spec.optimizer.lr * factor(self.spec.schedule, step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.scheduler._last_lr = [lr for _ in self.optimizer.param_groups]


def _share(loss: Tensor, parts: int) -> Tensor:
    return loss if parts == 1 else loss / parts  # dividing by 1 changes no bit, and costs two kernels
