"""`parity policy simulate`: what a checkpoint policy would keep on disk."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from parity.cli.options import count, local_path, positive, run_and_plan, seconds
from parity.contract import StepRecord, Validation, read_records, splice
from parity.errors import RunDirectoryError
from parity.policy import Rules, Saved, is_new_best, read_curve, simulate
from parity.report import print_moments

__all__ = ["add"]

CURVE = """\
CURVE is one of
  0.5,0.7,nan,-,0.9   the metrics of consecutive saves, - where none was measured
                      (after -- if the first one begins with a minus)
  FILE.csv            columns step and metric, or metric alone; a header may name them
  FILE                JSON lines with `step` and `value`, such as a run's validations.jsonl
  RUN                 a run directory: its own saves, validations, times and rules
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add `parity policy simulate` and its options."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser(
        "simulate",
        help="show what is on disk after every save of a curve",
        description="Shows, for a policy and a curve, what is on disk after every save, and why.",
        epilog=CURVE,
    )
    one.add_argument("curve", type=_curve, metavar="CURVE", help="metrics, a file of them, or a run; see below")
    one.add_argument("--keep-latest", type=positive, metavar="N", help="the N newest stay (default 3)")
    one.add_argument("--keep-best", type=count, metavar="M", help="the M best stay (default 1; 0 for none)")
    one.add_argument("--keep-every", type=count, metavar="K", help="multiples of K stay (default 0: none)")
    one.add_argument("--keep-seconds", type=seconds, metavar="T", help="one every T seconds stays (default 0: none)")
    one.add_argument(
        "--mode",
        choices=("min", "max"),
        help="whether a smaller or a larger metric is better (default max, or that of the metric CURVE names)",
    )
    one.add_argument(
        "--every", type=positive, default=100, metavar="STEPS", help="steps between saves, if CURVE names none (100)"
    )
    one.add_argument(
        "--seconds-per-step", type=seconds, metavar="S", help="time of a step (default 1; of a RUN, its own)"
    )
    one.set_defaults(run=_simulate)


def _simulate(options: argparse.Namespace) -> int:
    rules = Rules(mode="max")
    if os.path.isdir(options.curve):  # Path.is_dir() raises for a list of metrics that is longer than a name may be
        curve, rules = _read_run(Path(options.curve))
        if options.seconds_per_step is not None:
            curve = [replace(saved, saved_at=saved.step * options.seconds_per_step) for saved in curve]
    else:
        per_step = 1.0 if options.seconds_per_step is None else options.seconds_per_step
        curve, mode = read_curve(options.curve, options.every, per_step)
        rules = replace(rules, mode=mode or "max")
    names = ("mode", "keep_latest", "keep_best", "keep_every", "keep_seconds")
    asked = {name: value for name in names if (value := getattr(options, name)) is not None}
    rules = replace(rules, **asked)
    print_moments(simulate(curve, rules), rules, sys.stdout)
    return 0


def _curve(text: str) -> str:
    """Return what names a curve: metrics, or a local path."""
    local_path(text)
    return text


def _read_run(path: Path) -> tuple[list[Saved], Rules]:
    """Return what a run saves by its plan, up to its last recorded step, and its rules.

    Times are those of its training steps, without the pauses between processes.

    Raises:
        RunDirectoryError: There is no run, or it has no records yet.
    """
    run, plan = run_and_plan(path)
    steps = splice(read_records(run.steps, StepRecord))
    metrics = {step: record.value for step, record in splice(read_records(run.validations, Validation)).items()}
    saves: list[Saved] = []
    passed = 0.0
    for step, record in steps.items():
        passed += record.seconds
        saved = Saved(step=step, metric=metrics.get(step), saved_at=passed)
        best_so_far = plan.saves_new_best and is_new_best(saves, saved, plan.mode)
        if plan.saves_at(step) or step == plan.steps or best_so_far:
            saves.append(saved)
    if not saves:
        raise RunDirectoryError(f"{path} has not reached its first save (every {plan.save_every} steps)")
    return saves, plan.keep
