"""A small module under Lightning's `Trainer`, marked by a callback; clean, and with one fault at a time."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import parity

__all__ = ["train"]


class Net(lightning.LightningModule):
    """Two layers with dropout between, AdamW under a cosine."""

    def __init__(self, dropout: float, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Log the loss of a batch of the validation set."""
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        """Return the optimizer with its schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lose a part of what was saved."""
        if self.fault == "optimizer":
            checkpoint["optimizer_states"] = [{**checkpoint["optimizer_states"][0], "state": {}}]
        elif self.fault == "schedule":
            checkpoint["lr_schedulers"] = [{**checkpoint["lr_schedulers"][0], "last_epoch": 0}]
        elif self.fault == "weights":
            checkpoint["state_dict"] = {k: torch.zeros_like(v) for k, v in checkpoint["state_dict"].items()}


class Mark(lightning.Callback):
    """The line that a check needs."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Mark the completed steps."""
        parity.mark(trainer.global_step)


class Streams(lightning.Callback):
    """Saves the generator that shuffles and drops out, which Lightning leaves out of its checkpoints."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        return {"torch": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set it: before the loader begins, which draws the order of the epoch."""
        torch.set_rng_state(state["torch"])


class Average(lightning.Callback):
    """Averages the weights; saved unless it is the fault."""

    def __init__(self, *, saved: bool) -> None:
        self.saved, self.shadow = saved, {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Move a little towards the weights."""
        for name, weight in pl_module.state_dict().items():
            self.shadow[name] = 0.9 * self.shadow.get(name, weight) + 0.1 * weight

    def state_dict(self) -> dict[str, Any]:
        """Return the average."""
        return dict(self.shadow) if self.saved else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.shadow = dict(state)


class Batches:
    """A loader in order that knows its position; Lightning saves it, because it has these two methods."""

    def __init__(self, data: TensorDataset, *, knows: bool) -> None:
        self.data, self.knows, self.position, self.resumed = data, knows, 0, False

    def __len__(self) -> int:
        return len(self.data) // 8

    def __iter__(self) -> Iterator[Any]:
        self.position, self.resumed = self.position if self.resumed else 0, False
        while self.position < len(self):
            self.position += 1
            yield list(self.data[self.position * 8 - 8 : self.position * 8])

    def state_dict(self) -> dict[str, int]:
        """Return the batches that were handed out."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after them."""
        self.position, self.resumed = state["position"] if self.knows else 0, True


def train(
    folder: Path, steps: int = 24, *, fault: str = "", every: int = 0, dropout: float = 0.1, stateful: bool = False,
    validates: bool = False, accumulates: int = 1, averages: bool = False, patience: int = 0,
) -> None:  # fmt: skip
    """Train for some steps; continue from `last.ckpt` if there is one. `every` steps, or every epoch, it is saved."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    lightning.seed_everything(0, verbose=False)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 8, generator=generator), torch.randint(3, (64,), generator=generator))
    loader: Any = DataLoader(data, batch_size=8, shuffle=True)
    if stateful:
        loader = Batches(data, knows=fault != "loader")
    saver = ModelCheckpoint(
        folder, save_last=True, every_n_train_steps=every or None, every_n_epochs=None if every else 1,
        monitor="val" if validates else None, save_top_k=2 if validates else 1,
        save_on_train_epoch_end=not every or None,
    )  # fmt: skip
    callbacks = [saver, Mark()]
    callbacks += [] if fault == "streams" else [Streams()]
    callbacks += [Average(saved=fault != "average")] if averages else []
    callbacks += [EarlyStopping("val", patience=patience)] if patience else []
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, callbacks=callbacks,
        enable_model_summary=False, limit_val_batches=2 if validates else 0, accumulate_grad_batches=accumulates,
        num_sanity_val_steps=0, default_root_dir=folder,
    )  # fmt: skip
    last = folder / "last.ckpt"
    validation = DataLoader(data, batch_size=8) if validates else None
    trainer.fit(Net(dropout, fault), loader, validation, ckpt_path=last if last.exists() else None)
