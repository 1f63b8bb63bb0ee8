"""The command `parity`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parity import sides
from parity.drive import Drills, Resume, train
from parity.errors import DivergedError, ParityError
from parity.report.progress import Progress
from parity.spec import PRECISIONS, PRESETS
from parity.specfile import load

__all__ = ["main"]

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 holds (or trained), 1 broken (or diverged), 2 usage, 3 crashed, 4 inconclusive, 5 nothing compared;
    128 + the signal when training was stopped by one after saving.
    """
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except ParityError as error:
        print(f"parity: error: {error}", file=sys.stderr)
        return 1 if isinstance(error, DivergedError) else USAGE_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parity", description="Proves that training resumes exactly: in PyTorch, in JAX, and across the two."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands.add_parser("train", help="train a run, or go on with it"))
    return parser


def _add_spec_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precision", choices=PRECISIONS, help="replaces the spec's own")
    parser.add_argument(
        "--set", action="append", default=[], metavar="field.name=value", help="override a field of the spec; repeatable"
    )
    parser.add_argument("--steps", type=_positive, metavar="N", help="where to stop")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--side", required=True, metavar="{jax,torch}")
    parser.add_argument(
        "--spec", required=True, metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file"
    )
    parser.add_argument("--dir", required=True, type=Path, metavar="RUN", help="run directory, created or continued")
    _add_spec_options(parser)
    parser.add_argument(
        "--resume", type=_resume, default="auto", metavar="auto|latest|best|STEP|never", help="default: auto"
    )
    parser.add_argument("--trace-state", action="store_true", help="write leaf digests to RUN/states.jsonl")
    parser.add_argument("--hold-at", type=_positive, metavar="STEP", help="for drills: wait to be killed behind this step")
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    side = sides.load(options.side)
    spec = load(options.spec, options.precision, options.set)
    if options.steps:
        spec = replace(spec, steps=options.steps)
    drills = Drills(trace=options.trace_state, hold_at=options.hold_at)
    with Progress(spec.steps) as progress:
        outcome = train(
            side,
            options.side,
            spec,
            options.dir,
            resume=options.resume,
            say=progress.say,
            watch=progress.watch,
            drills=drills,
        )
    return 0 if outcome.signal is None else 128 + outcome.signal


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _resume(text: str) -> Resume:
    if text in ("auto", "latest", "best", "never"):
        return text
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"must be auto, latest, best, never or a step, got {text!r}")
