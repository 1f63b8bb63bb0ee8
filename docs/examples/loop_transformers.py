"""A small GPT-2 of random weights under Hugging Face's `Trainer`, with a callback that marks."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import parity


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random tokens, to be learnt by heart."""

    def __init__(self) -> None:
        self.ids = torch.randint(32, (64, 8), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Mark(TrainerCallback):
    """The mark of the check; without one it does nothing."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the completed steps."""
        parity.mark(state.global_step)


def train(folder: Path, steps: int = 18) -> None:
    """Train a language model; continue from the newest checkpoint in the folder."""
    transformers.set_seed(0)
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    args = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=8, save_steps=5, save_total_limit=2,
        learning_rate=1e-2, report_to=[], use_cpu=True,
    )  # fmt: skip
    trainer = Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=Tokens(), callbacks=[Mark()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
