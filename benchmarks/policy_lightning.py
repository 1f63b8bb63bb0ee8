"""Lightning's ModelCheckpoint under the table of cases: one callback for each rule, as its users combine them."""

from __future__ import annotations

import datetime
import importlib.metadata
import logging
import re
import types
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, model_checkpoint

from benchmarks.policy_loops import BLOCK, Loop, NoSuchOption, Order
from parity.errors import CheckpointError
from parity.policy import Rules


def version() -> str:
    return f"lightning {importlib.metadata.version('lightning')}"


class Module(pl.LightningModule):
    """One weight; validates with the metric that is asked for."""

    def __init__(self, loop: Loop, clock: Any, metrics: dict[int, float | None]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.loop, self.clock, self.metrics = loop, clock, metrics

    def training_step(self, batch: Any, index: int) -> Any:
        if self.global_step % BLOCK == 0:
            self.loop.next_block()
        if self.global_step % BLOCK == BLOCK - 1:
            self.clock.now = self.loop.order.at
        return self.layer(batch).sum()

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("score", torch.tensor(self.metrics[self.global_step], dtype=torch.float64))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Lightning:
    """One directory; a restart is a new trainer that resumes from `last.ckpt`."""

    def __init__(self, home: Path, rules: Rules, measured: bool, every: int = BLOCK) -> None:
        self.home, self.measured, self.every = home, measured and every == BLOCK, every
        self._rules = rules
        self.clock = types.SimpleNamespace(now=0.0)
        self.metrics: dict[int, float | None] = {}
        """By step; a validation that is run again after a restart gives the same."""
        model_checkpoint.time = types.SimpleNamespace(monotonic=lambda: self.clock.now)
        self._start(None)

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        self.metrics[step] = metric
        self.loop.give(Order(step, metric, saved_at))

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        self.save(step, metric, saved_at)  # a validation: the callback of the latest saves every so many steps only

    def metric(self, step: int, value: float) -> None:
        raise NoSuchOption("metrics come with the save")

    def restart(self) -> None:
        self._go_on(self._last())

    def rules(self, rules: Rules) -> None:
        self._rules = rules
        self.restart()

    def resume(self, which: Any) -> None:
        if which == "best":
            path = Path(self.keeps_best.best_model_path) if self.keeps_best else None
        elif which == "latest":
            path = self._last()
        else:
            path = next((p for p in self.home.glob("*.ckpt") if _step(p) == which), None)
        if path is None or not path.is_file():
            self.restart()
            raise CheckpointError("no such file")
        self._go_on(path)

    def on_disk(self) -> set[int]:
        return {step for path in self.home.glob("*.ckpt") if (step := _step(path)) is not None}

    def best(self) -> int | None:
        return _step(Path(self.keeps_best.best_model_path)) if self.keeps_best else None

    def latest(self) -> int | None:
        last = self._last()
        return None if last is None else int(torch.load(last, weights_only=False)["global_step"])

    def close(self) -> None:
        self.loop.kill()

    def _measured_at(self, step: int) -> bool:
        return self.metrics.get(step) is not None

    def _last(self) -> Path | None:
        """Return what `ckpt_path="last"` takes: the youngest of its name."""
        return max(self.home.glob("last*.ckpt"), key=lambda path: path.stat().st_mtime_ns, default=None)

    def _go_on(self, path: Path | None) -> None:
        self.close()
        self._start(path)

    def _callbacks(self) -> list[ModelCheckpoint]:
        rules, home = self._rules, self.home
        common = {"dirpath": home, "auto_insert_metric_name": True}
        self.keeps_best = None
        out = []
        if rules.keep_best:
            self.keeps_best = ModelCheckpoint(
                **common, filename="best-{step}", monitor="score", mode=rules.mode, save_top_k=rules.keep_best
            )
            out.append(self.keeps_best)
        if rules.keep_every:
            out.append(
                ModelCheckpoint(
                    **common, filename="every-{step}", every_n_train_steps=rules.keep_every, save_top_k=-1
                )
            )
        if rules.keep_seconds:
            interval = datetime.timedelta(seconds=rules.keep_seconds)
            out.append(ModelCheckpoint(**common, filename="time-{step}", train_time_interval=interval, save_top_k=-1))
        when = {} if self.measured else {"every_n_train_steps": self.every}
        latest = {"monitor": "step", "mode": "max", "save_top_k": rules.keep_latest, "save_last": True}
        return [*out, ModelCheckpoint(**common, filename="latest-{step}", **latest, **when)]

    def _start(self, path: Path | None) -> None:
        callbacks = self._callbacks()

        def train(loop: Loop) -> None:
            trainer = pl.Trainer(
                accelerator="cpu",
                max_steps=-1,
                max_epochs=-1,
                val_check_interval=BLOCK,
                check_val_every_n_epoch=None,
                num_sanity_val_steps=0,
                limit_val_batches=1,
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=callbacks,
                default_root_dir=self.home,
            )
            epoch = trainer.fit_loop.epoch_loop
            due = epoch._should_check_val_fx
            # As a run that validates at every other save: where no metric is asked for, nothing is validated.
            epoch._should_check_val_fx = lambda fetcher: due(fetcher) and self._measured_at(trainer.global_step)
            data = torch.utils.data.DataLoader(torch.ones(100_000, 1), batch_size=1)
            trainer.fit(
                Module(loop, self.clock, self.metrics),
                data,
                data,
                ckpt_path=path,
                **({"weights_only": False} if path else {}),
            )

        def quietly(loop: Loop) -> None:
            logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                train(loop)

        self.loop = Loop(quietly)


def _step(path: Path) -> int | None:
    found = re.search(r"step=(\d+)", path.name)
    return int(found[1]) if found else None
