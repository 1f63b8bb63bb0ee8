"""Orbax's CheckpointManager under the table of cases, configured to keep n latest and m best in two ways."""

from __future__ import annotations

import datetime
import importlib.metadata
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_manager as orbax_manager
from orbax.checkpoint import checkpoint_managers as policies

from benchmarks.policy_loops import NoSuchOption
from parity.errors import CheckpointError
from parity.policy import Rules

EPOCH = 1_000_000_000.0
"""What second 0 of a case is on Orbax's clock."""


def version() -> str:
    return f"orbax-checkpoint {importlib.metadata.version('orbax-checkpoint')}"


def by_best_fn(rules: Rules) -> dict[str, Any]:
    """One number for both: `max_to_keep` counts the best where there is a `best_fn`, else the newest."""
    best = {"best_fn": lambda metrics: metrics["score"], "best_mode": rules.mode} if rules.keep_best else {}
    return {
        "max_to_keep": rules.keep_latest + rules.keep_best,
        "keep_period": rules.keep_every or None,
        "keep_time_interval": datetime.timedelta(seconds=rules.keep_seconds) if rules.keep_seconds else None,
        **best,
    }


def by_policies(rules: Rules) -> dict[str, Any]:
    """Orbax's own preservation policies, any of which keeps."""
    any_of: list[Any] = [policies.LatestN(rules.keep_latest)]
    if rules.keep_best:
        any_of.append(
            policies.BestN(
                get_metric_fn=lambda metrics: metrics["score"],
                reverse=rules.mode == "min",
                n=rules.keep_best,
                keep_checkpoints_without_metrics=False,
            )
        )
    if rules.keep_every:
        any_of.append(policies.EveryNSteps(rules.keep_every))
    if rules.keep_seconds:
        any_of.append(policies.EveryNSeconds(int(rules.keep_seconds)))
    best = {"best_fn": lambda metrics: metrics["score"], "best_mode": rules.mode} if rules.keep_best else {}
    return {"preservation_policy": policies.AnyPreservationPolicy(any_of), **best}


class Orbax:
    """One directory; a restart is a new manager on it."""

    def __init__(self, home: Path, rules: Rules, options: Callable[[Rules], dict[str, Any]]) -> None:
        self.home, self.options = home, options
        self._rules = rules
        self.manager = self._open()

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        metrics = None if metric is None else {"score": metric}
        with clock_at(EPOCH + saved_at):
            try:
                saved = self.manager.save(step, args=ocp.args.StandardSave({"x": np.ones(2)}), metrics=metrics)
                self.manager.wait_until_finished()
            except Exception as error:
                raise CheckpointError(f"{type(error).__name__}") from error
        if not saved:
            raise CheckpointError("save() returned False")

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        raise NoSuchOption("when to save is decided before the metric is known")

    def metric(self, step: int, value: float) -> None:
        raise NoSuchOption("metrics come with the save")

    def restart(self) -> None:
        self.manager.close()
        self.manager = self._open()

    def rules(self, rules: Rules) -> None:
        self._rules = rules
        self.restart()

    def resume(self, which: Any) -> None:
        step = {"best": self.best(), "latest": self.latest()}.get(which, which)
        self.restart()
        if step is None:
            raise CheckpointError("none")
        try:
            self.manager.restore(step, args=ocp.args.StandardRestore({"x": np.ones(2)}))
        except Exception as error:
            self.restart()
            raise CheckpointError(str(error)) from error

    def on_disk(self) -> list[int]:
        return [int(path.name) for path in self.home.iterdir() if path.name.isdigit()]

    def best(self) -> int | None:
        return self.manager.best_step()

    def latest(self) -> int | None:
        return self.manager.latest_step()

    def close(self) -> None:
        self.manager.close()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(self.home, options=ocp.CheckpointManagerOptions(**self.options(self._rules)))


@contextmanager
def clock_at(now: float) -> Iterator[None]:
    """Let Orbax read this time of day."""

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.fromtimestamp(now, tz)

    names = types.SimpleNamespace(**{**vars(datetime), "datetime": Clock})
    with (
        mock.patch.object(orbax_manager, "datetime", names),
        mock.patch("time.time_ns", return_value=int(now * 1e9)),
    ):
        yield
