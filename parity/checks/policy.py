"""The policy check: the table of cases against the pure function, and against a side's real checkpoints on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checkpoints import clock_set_to
from parity.checks.scratch import scratch_directory
from parity.contract import Trainer
from parity.policy import Implementation, InMemory, Rules, Saved, Which, cases, is_new_best, replay
from parity.results import CheckRecord, Run
from parity.runs import Resume, RunDirectory, resume_run
from parity.sides import Side

__all__ = ["PURE", "Describe", "OnDisk", "check_policy", "check_policy_of"]

PURE = "memory"
"""Name in the place of a side where the pure function alone is checked."""

MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one: what stays is checked, not that it lasts; three times faster."""

Describe = Callable[[Rules], Any]
"""Returns what a side builds a trainer from: a small run, with its name, precision and plan, kept by these rules."""


def check_policy(run: Run) -> CheckRecord:
    """Run the table against the pure function, applied save by save.

    Args:
        run: What the record names; nothing is trained.
    """
    return _judge(run, PURE, InMemory)


def check_policy_of(name: str, side: Side, describe: Describe) -> CheckRecord:
    """Run the table against a side: a run directory for each case, saved to, restarted and resumed as a run is.

    Args:
        name: The side's name, which its run directories carry.
        side: The side.
        describe: Returns the run of a case.
    """
    home = MEMORY if os.access(MEMORY, os.W_OK) else None
    with scratch_directory("parity-policy-", home) as scratch:
        homes = (scratch / str(number) for number in range(len(cases())))
        run = describe(Rules(mode="max"))
        return _judge(run, name, lambda rules: OnDisk(name, side, next(homes), rules, describe))


def _judge(run: Run, name: str, make: Callable[[Rules], Implementation]) -> CheckRecord:
    began = time.perf_counter()
    found = [differences for case in cases() if (differences := replay(case, make))]
    groups = dict.fromkeys(differences[0].case.group for differences in found)
    return CheckRecord.of(
        run,
        "policy",
        (name,),
        "broken" if found else "holds",
        began=began,
        steps_compared=sum(len(case.rows) for case in cases()),
        suspects=tuple(f"policy.{group}" for group in groups),
        notes=tuple(str(differences[0]) for differences in found),
    )


class OnDisk:
    """A side's checkpoints in a run directory, driven as `parity train` drives them, without the training.

    Steps are set, not trained. Every save is waited for, because a case states what is on disk after it.
    """

    def __init__(self, name: str, side: Side, path: Path, rules: Rules, describe: Describe) -> None:
        self.name, self.side, self.describe = name, side, describe
        self.run = RunDirectory(path)
        self.spec = describe(rules)
        self.trainer: Trainer | None = None
        self._open("auto")

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        """Save as if the run had reached this step at this time."""
        trainer = self._running()
        trainer.counters = replace(trainer.counters, step=step)  # type: ignore[attr-defined]
        with clock_set_to(saved_at):
            trainer.save(metric)
            trainer.wait()

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        """Save a new best, as the loop of a run does after a validation."""
        new = Saved(step=step, metric=metric)
        known = [saved for saved in (self.run.pointed("best"),) if saved is not None]
        if self.spec.plan.saves_new_best and is_new_best(known, new, self.spec.plan.mode):
            self.save(step, metric, saved_at)

    def metric(self, step: int, value: float) -> None:
        """Note a late metric in the run directory, as another process would."""
        self.run.note_metric(step, value)

    def restart(self) -> None:
        """Close, and build anew from what is on disk."""
        self._open("auto")

    def rules(self, rules: Rules) -> None:
        """Continue under other rules."""
        self.spec = self.describe(rules)
        self._open("auto")

    def resume(self, which: Which) -> None:
        """Resume from the checkpoint that is named; if that is refused, from the latest, as a user would then."""
        try:
            self._open(which)
        except Exception:
            self._open("auto")
            raise

    def on_disk(self) -> list[int]:
        """Return the steps of the whole checkpoints."""
        return [saved.step for saved in self.run.scan().whole]

    def best(self) -> int | None:
        """Return the step that `best.json` points to."""
        return self._pointer("best")

    def latest(self) -> int | None:
        """Return the step that `latest.json` points to."""
        return self._pointer("latest")

    def close(self) -> None:
        """Close the trainer."""
        if self.trainer is not None:
            trainer, self.trainer = self.trainer, None
            trainer.close()

    def _open(self, resume: Resume) -> None:
        self.close()
        attempt = self.run.next_attempt()
        self.trainer = self.side.build(self.spec, self.run.path, attempt=attempt)
        self.run.open(self.spec, self.name)
        start = resume_run(self.run, self.trainer, resume, attempt, lambda line: None)
        self.run.begin_attempt(attempt, start, {})

    def _running(self) -> Trainer:
        assert self.trainer is not None, "closed"
        return self.trainer

    def _pointer(self, name: str) -> int | None:
        path = self.run.path / f"{name}.json"
        return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.exists() else None
