"""The policy check: the table of cases against the pure function, and against a side's real checkpoints on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checks import OnStep, ignore_step, scratch_directory
from parity.contract import Precision, Side, Trainer, drafts_of
from parity.policy import GROUPS, Implementation, PolicyInMemory, Rules, Saved, Which, cases, is_new_best, replay
from parity.results import CaseOutcome, CheckRecord
from parity.runs import ResumeChoice, RunDirectory, resume_run

__all__ = ["PURE", "OnDisk", "check_policy", "check_policy_of"]

PURE = "memory"
"""What stands for a side where the pure function alone is checked."""

MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one: what stays is checked, not that it lasts; three times faster."""

Describe = Callable[[Rules], Any]
"""Returns a run, as a side understands it, that keeps checkpoints by some rules and saves each new best at once."""


def check_policy() -> CheckRecord:
    """Run the table against the pure function, applied save by save."""
    return _judge(PolicyInMemory, PURE, "mlp-digits", "float32")


def check_policy_of(
    name: str,
    side: Side,
    describe: Describe,
    *,
    spec: str,
    precision: Precision,
    on_step: OnStep = ignore_step,
) -> CheckRecord:
    """Run the table against a side: a run directory for each case, saved to, restarted and resumed as a run is.

    Args:
        name: The side's name, which its run directories carry.
        side: The side.
        describe: Returns a run of the side that keeps checkpoints by given rules.
        spec: Name of the run, for the record.
        precision: What it computes in, for the record.
        on_step: Called as each case of the table begins.
    """
    home = MEMORY if os.access(MEMORY, os.W_OK) else None
    with scratch_directory("parity-policy-", home) as scratch:
        count = iter(range(len(cases())))

        def make(rules: Rules) -> OnDisk:
            number = next(count)
            on_step("case,", number, len(cases()))
            return OnDisk(name, side, scratch / str(number), describe, rules)

        return _judge(make, name, spec, precision)


def _judge(make: Callable[[Rules], Implementation], name: str, spec: str, precision: Precision) -> CheckRecord:
    began = time.perf_counter()
    replayed = [(case, replay(case, make)) for case in cases()]
    found = [differences for _, differences in replayed if differences]
    groups = dict.fromkeys(differences[0].case.group for differences in found)
    return CheckRecord.of(
        "policy",
        spec,
        precision,
        (name,),
        "broken" if found else "holds",
        began=began,
        steps_compared=sum(len(case.rows) for case in cases()),
        suspects=tuple(f"policy.{group}" for group in groups),
        notes=tuple(str(differences[0]) for differences in found),
        cases=tuple(
            CaseOutcome(
                group=case.group,
                rule=GROUPS[case.group],
                name=case.name,
                events=len(case.rows),
                found=str(differences[0]) if differences else "",
            )
            for case, differences in replayed
        ),
    )


class OnDisk:
    """A side's checkpoints in a run directory, driven as `parity train` drives them, but for the training.

    Steps are imported with the rest of the state, not trained. Every save is waited for, since a case says what is
    there after it.

    Args:
        name: The side's name, which the run directory carries.
        side: The side.
        path: The run directory.
        describe: Returns a run of the side that keeps checkpoints by given rules.
        rules: The rules to begin with.
    """

    def __init__(self, name: str, side: Side, path: Path, describe: Describe, rules: Rules) -> None:
        self.name, self.side, self.describe = name, side, describe
        self.run = RunDirectory(path, drafts=drafts_of(side))
        self.described = describe(rules)
        self.trainer: Trainer | None = None
        self._open("auto")

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        """Save as if the run had come to this step at this time."""
        trainer = self._running()
        state = trainer.export_state()
        trainer.import_state(replace(state, scalars={**state.scalars, "counters.step": step}))
        trainer.save(metric, saved_at=saved_at)
        trainer.wait()

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        """Save a new best, as the loop of a run does after a validation."""
        new = Saved(step=step, metric=metric)
        known = [saved for saved in (self.run.store.pointed("best"),) if saved is not None]
        plan = self._running().plan
        if plan.saves_new_best and is_new_best(known, new, plan.mode):
            self.save(step, metric, saved_at)

    def metric(self, step: int, value: float) -> None:
        """Note a late metric in the run directory, as another process would."""
        self.run.store.note_metric(step, value, self._running().plan)

    def restart(self) -> None:
        """Close, and build anew from what is on disk."""
        self._open("auto")

    def rules(self, rules: Rules) -> None:
        """Continue with other rules."""
        self.described = self.describe(rules)
        self._open("auto")

    def resume(self, which: Which) -> None:
        """Continue from what is named; if that is refused, from the latest, as one would after the error.

        Raises:
            CheckpointError: It was refused; the run continues from its latest checkpoint.
        """
        try:
            self._open(which)
        except Exception:
            self._open("auto")
            raise

    def on_disk(self) -> list[int]:
        """Return the steps of the whole checkpoints."""
        return [saved.step for saved in self.run.store.scan().whole]

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

    def _open(self, resume: ResumeChoice) -> None:
        self.close()
        attempt = self.run.next_attempt()
        self.trainer = self.side.build(self.described, self.run.path, attempt=attempt)
        self.run.open(self.trainer.identity, self.name)
        start = resume_run(self.run, self.trainer, resume, attempt, lambda line: None)
        self.run.begin_attempt(attempt, start, {})

    def _running(self) -> Trainer:
        assert self.trainer is not None, "closed"
        return self.trainer

    def _pointer(self, name: str) -> int | None:
        path = self.run.path / f"{name}.json"
        return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.exists() else None
