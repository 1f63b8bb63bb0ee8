"""The PyTorch trainer: the same phases in the same order; the host is synchronised once per chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parity.contract import Validation
from parity.schedules import Schedule
from parity.spec import RunSpec
from parity.state import TrainingState
from parity.twins import Chunk, StepInputs, StepOutputs, Twin
from torch_side import processes
from torch_side.checkpoint import Checkpoints
from torch_side.dropout import Dropout, mask_keys
from torch_side.model import build_model, loss_function
from torch_side.numerics import Dtypes, autocast, configure, dtypes
from torch_side.optimizer import RuleScheduler, build_optimizer, build_scheduler, clip_gradients, set_position
from torch_side.placement import build_placement
from torch_side.scaler import build_scaler
from torch_side.sharding import place_model
from torch_side.state import LiveState, export_arrays, import_arrays, initial_model_state, load_file_state

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

    Raises:
        SpecError: The spec asks for more than one device, for data that are not there, or for more memory than this
            machine has.
        StateError: The reader is `grain`, and Grain is not installed.
    """
    configure(spec)
    return TorchTrainer(spec, directory, attempt)


class TorchTrainer(Twin[LiveState, dict[str, Any]]):
    """The twin in PyTorch: eager or compiled, autocast, GradScaler, torch.optim.

    Args:
        spec: The run.
        directory: Run directory for checkpoints, or None for a trainer that cannot save.
        attempt: Process starts of this run before this one.

    Raises:
        SpecError: As of `build`, which also prepares the process.
        StateError: As of `build`.
    """

    side = "torch"

    def __init__(self, spec: RunSpec, directory: Path | None, attempt: int) -> None:
        self.placement = build_placement(spec)
        self.device = self.placement.device
        self.types = dtypes(spec.precision)
        super().__init__(spec, attempt, self.placement.share(spec.accumulation))
        torch.manual_seed(spec.seed)  # only native dropout draws from it
        self.model = build_model(spec).to(self.device)
        self.model.load_state_dict(initial_model_state(spec, self.layout), strict=True)
        self.split = place_model(self.model, spec, self.layout, self.placement)
        self.params = self.split.params
        self.optimizer = build_optimizer(spec, self.model, self.device, self.split.named)
        self.scheduler = build_scheduler(spec, self.optimizer)
        self.scaler = build_scaler(spec, self.device)
        self.masks = sum(isinstance(module, Dropout) and module.shared for module in self.model.modules())
        self._loss_of = loss_function(spec)
        compiled = spec.execution.torch == "compile"
        self._loss = torch.compile(self._plain_loss, dynamic=False) if compiled else self._plain_loss
        self.checkpoints = Checkpoints(self.layout, directory, self.spec_hash, self.placement) if directory else None
        self.processes = processes.count()

    @property
    def state(self) -> LiveState:
        """Return the objects that hold the state."""
        return LiveState(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            device=self.device,
            parts=self.split.parts,
        )

    # One step, phase by phase; the twin is JaxTrainer._train_step.

    def _train_step(self, inputs: Tensor, targets: Tensor, keys: Tensor, multiplier: float) -> tuple[Any, ...]:
        scale = self.scaler.get_scale() if self.spec.scaled else 1.0  # host sync, float16 only

        # Forward and backward, micro-batch by micro-batch; gradients add up in .grad.
        self.split.clear_gradients()
        losses, parts = list[Tensor](), self.spec.accumulation * self.split.shares
        for x, y, key in zip(inputs.unbind(), targets.unbind(), keys.unbind(), strict=True):
            with self.split.accumulating(last=len(losses) == self.spec.accumulation - 1):
                loss = self._loss(x, y, key)
                losses.append(loss.detach())
                scaled = self.scaler.scale(_share(loss, parts))
                (scaled * multiplier if self.spec.scaled else scaled).backward()
        loss = losses[0] if len(losses) == 1 else _share(torch.stack(losses).sum(), len(losses))
        self.split.take_gradients()

        # Unscale before the norm, and clip; overflow and norm are those of all devices.
        self.scaler.unscale_(self.optimizer)
        self.split.share_overflow(self.scaler, self.optimizer)
        norm = clip_gradients(self.params, self.spec.clip_norm, self.split.total)

        # Update, unless the scaler withholds it; the schedule advances in any case.
        lr = self.optimizer.param_groups[0]["lr"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        skipped = self.spec.scaled and self.scaler.get_scale() < scale  # host sync, float16 only
        return loss, lr, norm, scale, skipped

    def _plain_loss(self, x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        with autocast(self.spec.precision, self.device):
            return self._loss_of(self.split.forward(x, key, train=True), y, self.types)

    def _run_chunk(self, placed: Placed, n: int) -> StepOutputs:
        tensors = placed.inputs.unbind(), placed.targets.unbind(), placed.keys.unbind()
        columns = *tensors, placed.host.loss_multiplier.tolist()
        rows = [self._train_step(*row) for row in zip(*columns, strict=True)]
        self.fetch_next(n)  # on a GPU the chunk is still running
        loss, lr, norm, scale, skipped = zip(*rows, strict=True)
        return StepOutputs(
            loss=self.split.mean(torch.stack(loss)).cpu().numpy(),  # host sync: once per chunk
            lr=np.array(lr),
            grad_norm=torch.stack(norm).cpu().numpy(),
            loss_scale=np.array(scale),
            skipped=np.array(skipped),
        )

    def _place(self, chunk: Chunk, step: int) -> Placed:
        host, spec = self.step_inputs(step, len(chunk.digests)), self.spec
        lead = (len(chunk.digests), spec.accumulation, spec.micro_batch // self.split.shares)
        inputs, targets = (_typed(torch.from_numpy(a), self.types) for a in (chunk.inputs, chunk.targets))
        batches = inputs.view(*lead, *inputs.shape[2:]), targets.view(*lead, *targets.shape[2:])
        keys = mask_keys(spec.seed, host.index, spec.accumulation, self.masks)
        x, y, keys = self.placement.put_chunk(batches, [keys])
        return Placed(x, y, keys, host)

    def evaluate(self) -> Validation:
        """Measure on the validation samples, with running statistics and without dropout; see `Twin.take_metric`."""
        inputs = _typed(self.placement.put(torch.from_numpy(self.dataset.validation_inputs)), self.types)
        targets = _typed(self.placement.put(torch.from_numpy(self.dataset.validation_targets)), self.types)
        with torch.no_grad(), autocast(self.spec.precision, self.device):
            logits = self.model(inputs, None, train=False)
            loss = float(self._loss_of(logits, targets, self.types))
        accurate = self.spec.metric == "accuracy"
        value = int((logits.argmax(-1) == targets).sum()) / targets.numel() if accurate else loss
        loss, value = processes.exchange([loss, value])[0]  # whatever the other machines round: one metric decides
        self.take_metric(value)
        return Validation(attempt=self.attempt, step=self.step, metric=self.spec.metric, value=value, loss=loss)

    def _export(self, *, copy: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        return export_arrays(self.layout, self.state, copy=copy)

    def _import(self, neutral: TrainingState) -> tuple[dict[str, Any], dict[str, Any]]:
        return import_arrays(self.layout, self.state, neutral)

    def _load(self, content: dict[str, Any]) -> None:
        load_file_state(self.state, content)
        if isinstance(self.scheduler, RuleScheduler):
            assert self.schedule is not None
            self.scheduler.put(self.schedule)
        else:
            set_position(self.scheduler, self.schedule_step)

    def _moved_by(self, metric: float) -> None:
        if isinstance(self.scheduler, RuleScheduler):
            self.scheduler.step(metric)

    def _schedule_now(self) -> Schedule | None:
        return self.scheduler.read() if isinstance(self.scheduler, RuleScheduler) else None


def _share(loss: Tensor, parts: int) -> Tensor:
    return loss if parts == 1 else loss / parts  # dividing by 1 changes no bit, and costs two kernels


def _typed(samples: Tensor, types: Dtypes) -> Tensor:
    """Return numbers in the parameters' dtype, classes and bytes as int64."""
    return samples.to(types.params) if samples.is_floating_point() else samples.long()
