"""The same run under the trainers people use: Lightning's Trainer, Hugging Face's Trainer, Accelerate.

Model, optimizer, rates, clipping and batches are those of the bare loop, and every step's loss is kept, so that all
of them can be checked to give the same. Whatever costs time and is not needed is off: progress bars, loggers,
checkpoints, sanity checks. Data come as in their tutorials, samples in a `TensorDataset` that a `DataLoader` in the
process collates, or `lean`: whole batches cut before the clock starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.bare_torch import bare_model, bare_optimizer
from benchmarks.batches import Batches
from benchmarks.paired import Arm
from parity.spec import RunSpec
from parity.twins import factor

__all__ = ["ARMS", "Job"]


@dataclass(kw_only=True)
class Job:
    """One run: what every trainer is given."""

    spec: RunSpec
    """Float32, no dropout, no accumulation."""
    steps: int
    start: dict[str, Tensor]
    """The model's `state_dict` at step 0."""
    lean: bool
    """Whether the loader holds whole batches."""
    losses: list[Tensor] = field(default_factory=list)
    """Of the run under way."""

    def __post_init__(self) -> None:
        batches = Batches.of(self.spec, self.steps)
        self.rows = [row[0] for row in batches.rows]
        self.samples = tuple(torch.from_numpy(a) for a in (batches.dataset.inputs, batches.dataset.targets))
        self.samples = (self.samples[0], self.samples[1].long())

    def fresh(self) -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        """Return model, optimizer and scheduler at step 0."""
        self.losses = []
        model = bare_model(self.spec)
        model.load_state_dict(self.start)
        optimizer = bare_optimizer(self.spec, list(model.parameters()))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(self.spec.schedule, step))
        return model, optimizer, schedule

    def loader(self) -> DataLoader[Any]:
        """Return the batches of the run."""
        if self.lean:
            whole: Any = [tuple(column[row] for column in self.samples) for row in self.rows]
            return DataLoader(whole, batch_size=None)
        return DataLoader(TensorDataset(*self.samples), batch_sampler=[row.tolist() for row in self.rows])

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch, and keep it."""
        loss = F.cross_entropy(model(x), y)
        self.losses.append(loss.detach())
        return loss

    def arm(self, name: str, prepare: Callable[[], Callable[[], Any]]) -> Arm:
        """Return an arm whose trainer is built anew before every round, untimed."""
        ready: list[Callable[[], Any]] = []

        def reset() -> None:
            ready[:] = [prepare()]

        def run() -> np.ndarray:
            ready.pop()()
            return torch.stack(self.losses).numpy()

        return Arm(name=name, run=run, reset=reset, steps=self.steps)


def lightning_arm(job: Job, name: str, home: Path) -> Arm:
    """Return Lightning's Trainer with automatic optimization."""
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.own_optimizer, self.schedule = job.fresh()

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            return job.loss(self.model, *batch)

        def configure_optimizers(self) -> Any:
            return [self.own_optimizer], [{"scheduler": self.schedule, "interval": "step"}]

    def prepare() -> Callable[[], Any]:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            gradient_clip_val=job.spec.clip_norm,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=home,
        )
        module, loader = Module(), job.loader()
        return lambda: trainer.fit(module, loader)

    return job.arm(name, prepare)


def hugging_face_arm(job: Job, name: str, home: Path) -> Arm:
    """Return Hugging Face's Trainer."""
    import transformers

    class Wrapped(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": job.loss(self.model, x, labels)}

    class Trainer(transformers.Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            return _Order([i for row in job.rows for i in row.tolist()])

        def get_train_dataloader(self) -> Any:
            return _AsDicts(job.loader()) if job.lean else super().get_train_dataloader()

    options = transformers.TrainingArguments(
        output_dir=str(home),
        use_cpu=True,
        max_steps=job.steps,
        per_device_train_batch_size=job.spec.batch,
        max_grad_norm=job.spec.clip_norm,
        save_strategy="no",
        logging_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )

    def prepare() -> Callable[[], Any]:
        model, optimizer, schedule = job.fresh()
        data = _Samples(*job.samples)
        return Trainer(Wrapped(model), options, train_dataset=data, optimizers=(optimizer, schedule)).train

    return job.arm(name, prepare)


def accelerate_arm(job: Job, name: str, home: Path) -> Arm:
    """Return the loop of Accelerate's tutorial: its own backward, clipping, optimizer and loader."""
    import accelerate

    def prepare() -> Callable[[], Any]:
        accelerator = accelerate.Accelerator(cpu=True, project_dir=home)
        model, optimizer, schedule = job.fresh()
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, job.loader(), schedule)

        def train() -> None:
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                accelerator.backward(job.loss(model, x, y))
                accelerator.clip_grad_norm_(model.parameters(), job.spec.clip_norm)
                optimizer.step()
                schedule.step()

        return train

    return job.arm(name, prepare)


ARMS: dict[str, Callable[[Job, str, Path], Arm]] = {
    "lightning": lightning_arm,
    "transformers": hugging_face_arm,
    "accelerate": accelerate_arm,
}
"""Distribution to the function that returns its arm."""


@dataclass
class _Order(torch.utils.data.Sampler[int]):
    """A sampler that yields given samples, so that all trainers see the same batches."""

    order: list[int]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


@dataclass
class _Samples(Dataset[Any]):
    """Samples as the dicts that Hugging Face's Trainer takes."""

    inputs: Tensor
    labels: Tensor

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": self.inputs[i], "labels": self.labels[i]}

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass
class _AsDicts:
    """Whole batches as dicts."""

    loader: Iterable[Any]

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return ({"x": x, "labels": y} for x, y in self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]
