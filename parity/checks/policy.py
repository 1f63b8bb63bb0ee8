"""The policy check: the table of cases against the pure function, and against a side's real checkpoints on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from parity.checkpoints import clock_set_to
from parity.checks.scratch import scratch_directory
from parity.contract import Trainer
from parity.policy import Implementation, InMemory, Rules, Saved, Which, cases, is_new_best, mode_of, replay
from parity.results import CheckRecord
from parity.runs import Resume, RunDirectory, resume_run
from parity.sides import Side
from parity.spec import RunSpec, load

__all__ = ["PURE", "OnDisk", "check_policy", "check_policy_of"]

PURE = "memory"
"""What stands for a side where the pure function alone is checked."""

MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one: what stays is checked, not that it lasts; three times faster."""

SMALL = ("model.hidden=[4]", "batch=4", "data.validation=4", "steps=1000", "save.every=10", "validate_every=10")
"""A model that costs nothing: what is trained plays no role."""


def check_policy() -> CheckRecord:
    """Run the table against the pure function, applied save by save."""
    return _judge(PURE, InMemory)


def check_policy_of(name: str, side: Side) -> CheckRecord:
    """Run the table against a side: a run directory for each case, saved to, restarted and resumed as a run is.

    Args:
        name: The side's name, which its run directories carry.
        side: The side.
    """
    home = MEMORY if os.access(MEMORY, os.W_OK) else None
    with scratch_directory("parity-policy-", home) as scratch:
        count = iter(range(len(cases())))
        return _judge(name, lambda rules: OnDisk(name, side, scratch / str(next(count)), rules))


def _judge(name: str, make: Callable[[Rules], Implementation]) -> CheckRecord:
    began = time.perf_counter()
    found = [differences for case in cases() if (differences := replay(case, make))]
    groups = dict.fromkeys(differences[0].case.group for differences in found)
    return CheckRecord(
        name="policy",
        spec="mlp-digits",
        precision="float32",
        sides=(name,),
        verdict="broken" if found else "holds",
        criterion="bitwise",
        steps_compared=sum(len(case.rows) for case in cases()),
        suspects=tuple(f"policy.{group}" for group in groups),
        notes=tuple(str(differences[0]) for differences in found),
        seconds=time.perf_counter() - began,
    )


class OnDisk:
    """A side's checkpoints in a run directory, driven as `parity train` drives them, but for the training.

    Steps are set, not trained. Every save is waited for, since a case says what is there after it.
    """

    def __init__(self, name: str, side: Side, path: Path, rules: Rules) -> None:
        self.name, self.side = name, side
        self.run = RunDirectory(path)
        self.spec = load("mlp-digits", "float32", [*SMALL, f"metric={'accuracy' if rules.mode == 'max' else 'loss'}"])
        self.trainer: Trainer | None = None
        self._open(_with(self.spec, rules), "auto")

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        """Save as if the run had come to this step at this time."""
        trainer = self._running()
        trainer.counters = replace(trainer.counters, step=step)  # type: ignore[attr-defined]
        with clock_set_to(saved_at):
            trainer.save(metric)
            trainer.wait()

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        """Save a new best, as the loop of a run does after a validation."""
        new = Saved(step=step, metric=metric)
        known = [saved for saved in (self.run.pointed("best"),) if saved is not None]
        if self.spec.plan.saves_new_best and is_new_best(known, new, mode_of(self.spec.metric)):
            self.save(step, metric, saved_at)

    def metric(self, step: int, value: float) -> None:
        """Note a late metric in the run directory, as another process would."""
        self.run.note_metric(step, value)

    def restart(self) -> None:
        """Close, and build anew from what is on disk."""
        self._open(self.spec, "auto")

    def rules(self, rules: Rules) -> None:
        """Go on with another `[save]` in the spec."""
        self._open(_with(self.spec, rules), "auto")

    def resume(self, which: Which) -> None:
        """Go on from what is named; if that is refused, from the latest, as one would after the error."""
        try:
            self._open(self.spec, which)
        except Exception:
            self._open(self.spec, "auto")
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

    def _open(self, spec: RunSpec, resume: Resume) -> None:
        self.close()
        attempt = self.run.next_attempt()
        self.spec = spec
        self.trainer = self.side.build(spec, self.run.path, attempt=attempt)
        self.run.open(spec, self.name)
        start = resume_run(self.run, self.trainer, resume, attempt, lambda line: None)
        self.run.begin_attempt(attempt, start, {})

    def _running(self) -> Trainer:
        assert self.trainer is not None, "closed"
        return self.trainer

    def _pointer(self, name: str) -> int | None:
        path = self.run.path / f"{name}.json"
        return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.exists() else None


def _with(spec: RunSpec, rules: Rules) -> RunSpec:
    save = replace(
        spec.save,
        on_best="always" if rules.keep_best else "auto",
        keep_latest=rules.keep_latest,
        keep_best=rules.keep_best,
        keep_every=rules.keep_every,
        keep_seconds=rules.keep_seconds,
    )
    return replace(spec, save=save)
