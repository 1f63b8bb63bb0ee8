"""The resume and the policy check of the twins: runs that a RunSpec describes, trained by `parity train`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from parity.checks import OnStep, ignore_step
from parity.contract import Side, child_environment
from parity.errors import SpecError
from parity.policy import Rules
from parity.reference.planned import (
    CommandOf,
    Leg,
    StartProcess,
    check_resume,
    check_scenarios,
    drive_processes,
    plan_scenarios,
    run_processes,
    start_interpreter,
)
from parity.reference.policy import check_policy_of
from parity.results import CheckRecord
from parity.runs import ResumeChoice
from parity.spec import RunSpec, load, to_toml
from parity.twins import batches_per_epoch

__all__ = [
    "check_twin_policy",
    "check_twin_resume",
    "check_twin_scenarios",
    "drill_spec",
    "epochs_spec",
    "policy_spec",
    "train_command",
]

SMALL = ("model.hidden=[4]", "batch=4", "data.validation=4", "steps=1000", "save.every=10", "validate_every=10")
"""A model that costs nothing: the policy check does not train."""


EPOCHS = 5
"""Epochs before and after the kill of the classic experiment."""


def drill_spec(spec: RunSpec, steps: int) -> RunSpec:
    """Return the spec shortened to a number of steps, with five saves and as many validations, two chunks each.

    Replaces the intervals so that every kill comes after a save.

    Args:
        spec: The run.
        steps: Steps of the shortened run, at least 10.

    Raises:
        SpecError: Fewer than 10 steps are asked for.
    """
    if steps < 10:
        raise SpecError("--steps", f"{steps} steps leave no room for five saves and two kills; ask for 10 or more")
    return _saving_every(spec, steps // 5, steps)


def epochs_spec(spec: RunSpec) -> tuple[RunSpec, int]:
    """Return the spec of the classic experiment, and the step to kill it at: five epochs, a kill, five more.

    It saves and validates at the end of every epoch, and is killed a chunk after the save of the fifth.
    """
    every = batches_per_epoch(spec)
    spec = _saving_every(spec, every, 2 * EPOCHS * every)
    return spec, min(EPOCHS * every + spec.execution.chunk, spec.steps - 1)


def _saving_every(spec: RunSpec, every: int, steps: int) -> RunSpec:
    """Return the spec with other steps, saved and validated at one interval; a chunk is at most half of that."""
    return replace(
        spec,
        steps=steps,
        save=replace(spec.save, every=every),
        validate_every=every,
        execution=replace(spec.execution, chunk=min(spec.execution.chunk, max(1, every // 2))),
    )


def train_command(spec: RunSpec, side_name: str, spec_file: Path) -> CommandOf:
    """Write a spec, and return what makes the command lines of `parity train` on it.

    A process ends with this one, however that ends; on Linux even with the thread that started it, which therefore
    must live as long as it does.

    Args:
        spec: The run.
        side_name: Name of the side that trains it.
        spec_file: Where the spec is written; its directory is made if there is none.
    """
    spec_file.parent.mkdir(parents=True, exist_ok=True)
    spec_file.write_text(to_toml(spec), encoding="utf-8")

    def command(run: Path, pause_at: int | None) -> Sequence[str]:
        line = [sys.executable, "-m", "parity", "train", "--side", side_name, "--spec", str(spec_file)]
        line += ["--dir", str(run), "--trace-state", "--with-parent", str(os.getpid())]
        return line if pause_at is None else [*line, "--pause-at", str(pause_at)]

    return command


def check_twin_resume(
    spec: RunSpec,
    side_name: str,
    side: Side,
    workdir: Path,
    kills: Sequence[int] = (),
    on_step: OnStep = ignore_step,
    begin: StartProcess = start_interpreter,
) -> CheckRecord:
    """Run the resume check on a spec, in processes that are killed with SIGKILL.

    Args:
        spec: The run, with its intervals.
        side_name: Name of the side.
        side: The side.
        workdir: Where the run directories go.
        kills: Steps to kill at; by default `default_kills`: at an epoch's end, and a step after another.
        on_step: Called as the runs proceed.
        begin: Starts each process.
    """
    command = train_command(spec, side_name, workdir / "spec.toml")
    run = partial(
        run_processes,
        command,
        spec.plan,
        workdir,
        kills,
        epoch=None if kills else batches_per_epoch(spec),
        environment=child_environment(side),
        begin=begin,
        on_step=on_step,
    )
    return check_resume(run, name=spec.name, precision=spec.precision, side=side_name)


def check_twin_scenarios(
    spec: RunSpec,
    side_name: str,
    side: Side,
    workdir: Path,
    scenarios: Sequence[str],
    on_step: OnStep = ignore_step,
    begin: StartProcess = start_interpreter,
) -> CheckRecord:
    """Run the resume check on a spec in scenarios, in processes that are killed with SIGKILL or stopped with SIGTERM.

    Args:
        spec: The run, with its intervals.
        side_name: Name of the side.
        side: The side.
        workdir: Where the run directories go, one for each scenario.
        scenarios: Names of the registry.
        on_step: Called as scenarios are driven to their end.
        begin: Starts each process.
    """
    planned, closed = plan_scenarios(scenarios, spec.plan, batches_per_epoch(spec))
    command = train_command(spec, side_name, workdir / "spec.toml")
    drive = partial(
        drive_processes,
        command,
        _arguments,
        spec.plan,
        workdir,
        planned,
        environment=child_environment(side),
        begin=begin,
        on_step=on_step,
    )
    return check_scenarios(drive, closed, name=spec.name, precision=spec.precision, side=side_name)


def _arguments(leg: Leg, resume: ResumeChoice) -> list[str]:
    """Return what a process of a scenario is told beside its spec."""
    changes = [part for name, value in leg.changes.items() for part in ("--set", f"{name}={value}")]
    return ["--resume", str(resume), *changes]


def policy_spec(rules: Rules) -> RunSpec:
    """Return the spec of a run that keeps its checkpoints by some rules."""
    spec = load("mlp-digits", "float32", [*SMALL, f"metric={'accuracy' if rules.mode == 'max' else 'loss'}"])
    save = replace(
        spec.save,
        on_best="always" if rules.keep_best else "auto",
        keep_latest=rules.keep_latest,
        keep_best=rules.keep_best,
        keep_every=rules.keep_every,
        keep_seconds=rules.keep_seconds,
    )
    return replace(spec, save=save)


def check_twin_policy(name: str, side: Side, on_step: OnStep = ignore_step) -> CheckRecord:
    """Run the policy check on a side, with the runs of `policy_spec`.

    Args:
        name: Name of the side.
        side: The side.
        on_step: Called as each case of the table begins.
    """
    return check_policy_of(name, side, policy_spec, spec="mlp-digits", precision="float32", on_step=on_step)
