"""A small GPT-2 under Hugging Face's `Trainer`, marked by a callback; clean, and with one fault at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import parity

__all__ = ["train"]


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random tokens, to be learnt by heart; one may be put over another as they are read."""

    def __init__(self, *, noise: bool = False) -> None:
        generator = torch.Generator().manual_seed(1)
        self.ids, self.noise = torch.randint(32, (64, 8), generator=generator), noise

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.ids[index]
        if self.noise:
            ids = torch.where(torch.rand(len(ids)) < 0.2, 0, ids)
        return {"input_ids": ids, "labels": self.ids[index]}


class Mark(TrainerCallback):
    """The line that a check needs."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the completed steps."""
        parity.mark(state.global_step)


class Average(TrainerCallback):
    """Averages the weights, and saves nothing of it."""

    def __init__(self) -> None:
        self.shadow: dict[str, torch.Tensor] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Move a little towards the weights."""
        for name, weight in given["model"].state_dict().items():
            self.shadow[name] = 0.9 * self.shadow.get(name, weight) + 0.1 * weight


def train(
    folder: Path, steps: int = 18, *, fault: str = "", every: int = 5, accumulates: int = 1, validates: bool = False,
    noise: bool = False, **settings: Any,
) -> None:  # fmt: skip
    """Train for some steps; continue from the newest checkpoint if there is one."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    transformers.set_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    args = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=8 // accumulates,
        gradient_accumulation_steps=accumulates, save_steps=every, save_total_limit=2, learning_rate=1e-2,
        logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, seed=0,
        eval_strategy="steps" if validates else "no", eval_steps=4, save_only_model=fault == "weights only",
        ignore_data_skip=fault == "order", **settings,
    )  # fmt: skip
    callbacks = [Mark(), *([Average()] if fault == "average" else [])]
    data = Tokens(noise=noise)
    trainer = Trainer(
        model=model, args=args, train_dataset=data, eval_dataset=data if validates else None, callbacks=callbacks
    )
    newest = get_last_checkpoint(str(folder))
    lost = {"optimizer": "optimizer.pt", "schedule": "scheduler.pt", "streams": "rng_state.pth"}.get(fault)
    if newest and lost:
        (Path(newest) / lost).unlink(missing_ok=True)
    trainer.train(resume_from_checkpoint=newest)
