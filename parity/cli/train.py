"""`parity train`: train a run, or go on with it."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity import sides
from parity.cli.options import add_spec_options, count, deadline, directory, positive
from parity.cli.parent import end_with_parent
from parity.cli.progress import Progress
from parity.contract import StepRecord
from parity.results import EXIT_CODES
from parity.runs import DEADLINE_SECONDS, Drills, Resume, join, train
from parity.spec import PRESETS, load
from parity.trackers import TRACKERS, Trackers
from parity.trackers import load as load_trackers

__all__ = ["add", "quiet_orbax"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity train`."""
    parser.add_argument(
        "--side",
        required=True,
        metavar="SIDE",
        help=f"{', '.join(sides.SIDES)}, or the name of an entry point of the group {sides.GROUP}",
    )
    parser.add_argument("--spec", required=True, metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file")
    parser.add_argument(
        "--dir", required=True, type=directory, metavar="RUN", help="run directory, created or continued"
    )
    add_spec_options(parser)
    parser.add_argument(
        "--resume", type=_resume, default="auto", metavar="auto|latest|best|STEP|never", help="default: auto"
    )
    parser.add_argument(
        "--or-next", action="store_true", help="with --resume best: take the next best where the best is damaged"
    )
    parser.add_argument(
        "--on-error",
        choices=("stop", "continue"),
        default="stop",
        help="when a checkpoint cannot be written: stop (default), or report it, go on, and exit with 3 at the end",
    )
    parser.add_argument(
        "--deadline",
        type=deadline,
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
    asyncio tells of these later, if they failed in time: in no step of ours, and only now and then. It writes its
    arrays side by side too, and TensorStore reports those that end after the first failure to the closed loop.
    """
    logging.getLogger("absl").addFilter(_not_of_orbax)
    logging.getLogger("asyncio").addFilter(_not_of_orbax)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")  # of a save that was given up
    if not isinstance(sys.unraisablehook, _WithoutLateReports):
        sys.unraisablehook = _WithoutLateReports(sys.unraisablehook)


@dataclass(frozen=True)
class _WithoutLateReports:
    """A hook for exceptions that nobody can take, without those of reports to an event loop that is closed.

    A report comes from a thread below Python: the first frame of its traceback is the loop's own.
    """

    others: Callable[[sys.UnraisableHookArgs], object]

    def __call__(self, raised: sys.UnraisableHookArgs) -> None:
        error = raised.exc_value
        frames = error.__traceback__ if isinstance(error, RuntimeError) else None
        first = frames.tb_frame.f_code.co_name if frames is not None else ""
        if first != "call_soon_threadsafe" or str(error) != "Event loop is closed":
            self.others(raised)


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
    with (
        join(sides.processes_of(side), _facts(options), spec, options.deadline) as together,
        Progress(spec.steps, shown=together.first) as progress,
        Trackers(trackers if together.first else {}, options.dir, spec, progress.say) as tracked,
    ):
        outcome = train(
            side,
            options.side,
            spec,
            options.dir,
            resume=options.resume,
            or_next=options.or_next,
            say=progress.say,
            drills=drills,
            on_error=options.on_error,
            deadline=options.deadline,
            together=together,
            **_watches(progress, tracked if trackers else None),
        )
    for failure in outcome.failures:
        print(f"parity: error: {failure}", file=sys.stderr)
    if outcome.failures:
        return EXIT_CODES["crashed"]
    return 0 if outcome.signal is None else 128 + outcome.signal


def _facts(options: argparse.Namespace) -> dict[str, str]:
    """Return what all processes of a run must be started with, beside the spec."""
    names = ("side", "resume", "or_next", "on_error", "trace_state", "hold_at")
    given = {f"--{name.replace('_', '-')}": str(getattr(options, name)) for name in names}
    return {**given, "--dir": str(options.dir.resolve())}


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
    if text.isascii() and text.isdigit():
        return count(text)
    raise argparse.ArgumentTypeError(f"must be auto, latest, best, never or a step, got {text!r}")
