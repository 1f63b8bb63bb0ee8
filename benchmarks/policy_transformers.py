"""Hugging Face's Trainer under the table of cases: `save_total_limit` with `load_best_model_at_end`."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.policy_loops import BLOCK, Loop, NoSuchOption, Order
from parity.errors import CheckpointError
from parity.policy import Rules

transformers.logging.set_verbosity_error()

NO_LATE = "metrics come with the save"


def version() -> str:
    names = ("transformers", "accelerate")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        out = self.layer(x)
        return {"loss": out.square().mean(), "logits": out}


class Data(torch.utils.data.Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.ones(1), "labels": torch.ones(1)}


class Waiting(transformers.Trainer):
    """The Trainer, waiting for an order at the start of each block."""

    loop: Loop

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step % BLOCK == 0:
            self.loop.next_block()
        return super().training_step(*args, **kwargs)


class HuggingFace:
    """One output directory; a restart is a new Trainer that resumes from the last checkpoint in it."""

    def __init__(self, home: Path, rules: Rules) -> None:
        self.home = home
        self._rules = rules
        self._start(None)

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        if metric is None and self._rules.keep_best:
            raise NoSuchOption("every save needs an evaluation where the best is kept")
        self.loop.give(Order(step, metric, saved_at))

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        raise NoSuchOption("`save_strategy` is every n steps or at a new best, never both")

    def metric(self, step: int, value: float) -> None:
        raise NoSuchOption(NO_LATE)

    def restart(self) -> None:
        self._go_on(get_last_checkpoint(str(self.home)))

    def rules(self, rules: Rules) -> None:
        self._rules = rules
        self.restart()

    def resume(self, which: Any) -> None:
        named = {"best": self.trainer.state.best_model_checkpoint, "latest": get_last_checkpoint(str(self.home))}
        path = named.get(which, str(self.home / f"checkpoint-{which}"))
        if path is None or not Path(path).is_dir():
            self.restart()
            raise CheckpointError("no such directory")
        self._go_on(path)

    def on_disk(self) -> list[int]:
        return [_step(path.name) for path in self.home.glob("checkpoint-*")]

    def best(self) -> int | None:
        best = self.trainer.state.best_model_checkpoint
        return None if best is None else _step(best)

    def latest(self) -> int | None:
        last = get_last_checkpoint(str(self.home))
        return None if last is None else _step(last)

    def close(self) -> None:
        self.loop.kill()

    def _go_on(self, path: str | None) -> None:
        self.close()
        self._start(path)

    def _arguments(self) -> transformers.TrainingArguments:
        rules = self._rules
        for asked, why in (
            (rules.keep_best > 1, "one best at most"),
            (rules.keep_every, "nothing stays by its step"),
            (rules.keep_seconds, "nothing stays by time"),
        ):
            if asked:
                raise NoSuchOption(why)
        best = {
            "eval_strategy": "steps",
            "eval_steps": BLOCK,
            "load_best_model_at_end": True,
            "metric_for_best_model": "score",
            "greater_is_better": rules.mode == "max",
        }
        return transformers.TrainingArguments(
            output_dir=str(self.home),
            save_strategy="steps",
            save_steps=BLOCK,
            save_total_limit=rules.keep_latest + rules.keep_best,
            max_steps=100_000,
            per_device_train_batch_size=1,
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            **(best if rules.keep_best else {}),
        )

    def _start(self, path: str | None) -> None:
        arguments = self._arguments()
        self.trainer = Waiting(
            model=Model(),
            args=arguments,
            train_dataset=Data(1000),
            eval_dataset=Data(1),
            compute_metrics=lambda _: {"score": self.loop.order.metric},
        )

        self.trainer.remove_callback(transformers.PrinterCallback)

        def train(loop: Loop) -> None:
            self.trainer.loop = self.loop = loop
            self.trainer.train(resume_from_checkpoint=path)

        self.loop = Loop(train)


def _step(name: str) -> int:
    return int(re.findall(r"\d+", Path(name).name)[-1])
