"""A module under Lightning's `Trainer`: a callback that marks, and one for what Lightning does not save."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import parity


class Classifier(lightning.LightningModule):
    """Two layers with dropout between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        """Return the optimizer with its schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Mark(lightning.Callback):
    """The mark of the check; without one it does nothing."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Mark the completed steps."""
        parity.mark(trainer.global_step)


class Streams(lightning.Callback):
    """Saves the generator of dropout and shuffling: Lightning does not."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        return {"torch": torch.get_rng_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set it: before the loader begins."""
        torch.set_rng_state(state_dict["torch"])


class Batches:
    """Batches in order, with their position: Lightning saves it for a loader that has these two methods."""

    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        self.inputs, self.labels, self.position, self.resumed = inputs, labels, 0, False

    def __len__(self) -> int:
        return len(self.inputs) // 32

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self.position, self.resumed = self.position if self.resumed else 0, False
        while self.position < len(self):
            self.position += 1
            at = slice(self.position * 32 - 32, self.position * 32)
            yield self.inputs[at], self.labels[at]

    def state_dict(self) -> dict[str, int]:
        """Return how many batches were handed out."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after them."""
        self.position, self.resumed = state["position"], True


def train(folder: Path, steps: int = 30) -> None:
    """Train a classifier; continue from `folder/last.ckpt` if there is one."""
    lightning.seed_everything(0)
    batches = Batches(torch.randn(256, 8), torch.randint(0, 3, (256,)))
    saver = ModelCheckpoint(folder, save_last=True, every_n_train_steps=10)
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=1, callbacks=[Mark(), Streams(), saver], logger=False
    )
    last = folder / "last.ckpt"
    trainer.fit(Classifier(), batches, ckpt_path=last if last.exists() else None)
