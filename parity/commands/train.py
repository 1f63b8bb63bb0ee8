"""`parity train`: train a run, or go on with it."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import sides
from parity.checks.record import EXIT_CODES
from parity.commands.options import add_spec_options, positive
from parity.commands.parent import end_with_parent
from parity.drive import Drills, Resume, train
from parity.report.progress import Progress
from parity.spec import PRESETS
from parity.specfile import load
from parity.stopping import DEADLINE_SECONDS
from parity.trackers import TRACKERS, Trackers
from parity.trackers import load as load_trackers
from parity.trainer import StepRecord

__all__ = ["add", "quiet_orbax"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity train`."""
    parser.add_argument("--side", required=True, metavar="{jax,torch}")
    parser.add_argument("--spec", required=True, metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file")
    parser.add_argument("--dir", required=True, type=Path, metavar="RUN", help="run directory, created or continued")
    add_spec_options(parser)
    parser.add_argument(
        "--resume", type=_resume, default="auto", metavar="auto|latest|best|STEP|never", help="default: auto"
    )
    parser.add_argument(
        "--on-error",
        choices=("stop", "continue"),
        default="stop",
        help="when a checkpoint cannot be written: stop (default), or report it, go on, and exit with 3 at the end",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE_SECONDS,
        metavar="SECONDS",
        help=f"longest a stop by SIGTERM, SIGINT or SIGHUP may take to save (default {DEADLINE_SECONDS:g})",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        choices=TRACKERS,
        help="log to RUN/tensorboard or RUN/wandb too; repeatable (extras of the same names)",
    )
    parser.add_argument("--trace-state", action="store_true", help="write leaf digests to RUN/states.jsonl")
    parser.add_argument(
        "--hold-at", type=positive, metavar="STEP", help="for drills: wait to be killed behind this step"
    )
    parser.add_argument("--with-parent", type=positive, metavar="PID", help=argparse.SUPPRESS)  # of `parity check`
    parser.set_defaults(run=_run, lost_streams="mute")


def quiet_orbax() -> None:
    """Keep Orbax from writing tracebacks of failures that are reported in one line anyway.

    It makes its directories side by side. When one cannot be made, it closes its event loop under the others, and
    asyncio tells of these later, if they failed in time: in no step of ours, and only now and then.
    """
    logging.getLogger("absl").addFilter(_not_of_orbax)
    logging.getLogger("asyncio").addFilter(_not_of_orbax)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")  # of a save that was given up


def _not_of_orbax(record: logging.LogRecord) -> bool:
    """Return whether Orbax neither wrote a record nor stands in its message or its traceback."""
    own = str(Path("orbax", "checkpoint"))
    return own not in record.pathname and own not in logging.Formatter().format(record)


def _run(options: argparse.Namespace) -> int:
    if options.with_parent:
        end_with_parent(options.with_parent)
    trackers = load_trackers(options.log)  # first: a missing package is said before anything is trained
    side = sides.load(options.side)
    quiet_orbax()
    spec = load(options.spec, options.precision, options.set)
    if options.steps:
        spec = replace(spec, steps=options.steps)
    drills = Drills(trace=options.trace_state, hold_at=options.hold_at)
    with Progress(spec.steps) as progress, Trackers(trackers, options.dir, spec, progress.say) as tracked:
        outcome = train(
            side,
            options.side,
            spec,
            options.dir,
            resume=options.resume,
            say=progress.say,
            drills=drills,
            on_error=options.on_error,
            deadline=options.deadline,
            **_watches(progress, tracked if trackers else None),
        )
    for failure in outcome.failures:
        print(f"parity: error: {failure}", file=sys.stderr)
    if outcome.failures:
        return EXIT_CODES["crashed"]
    return 0 if outcome.signal is None else 128 + outcome.signal


def _watches(progress: Progress, tracked: Trackers | None) -> dict[str, Any]:
    """Return who is told of records; without a tracker nothing stands between the loop and the progress bar."""
    if tracked is None:
        return {"watch": progress.watch}

    def watch(record: StepRecord) -> None:
        progress.watch(record)
        tracked.watch(record)

    return {"watch": watch, "watch_validation": tracked.watch}


def _resume(text: str) -> Resume:
    if text in ("auto", "latest", "best", "never"):
        return text
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"must be auto, latest, best, never or a step, got {text!r}")
