"""The command `parity`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parity import sides
from parity.checks.record import EXIT_CODES, overall
from parity.checks.suite import CHECKS, DEFAULT_STEPS, Request, run_checks, standard_matrix
from parity.datasets import describe_data
from parity.drive import Drills, Resume, train
from parity.errors import DivergedError, ParityError, SpecError
from parity.report.document import describe_environment, document, encode
from parity.report.progress import Progress
from parity.report.terminal import print_table
from parity.rundir import replace_file
from parity.spec import PRECISIONS, PRESETS, RunSpec
from parity.specfile import load, override

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
        return EXIT_CODES["broken"] if isinstance(error, DivergedError) else USAGE_ERROR
    except Exception:  # our own fault: never to be taken for a verdict
        traceback.print_exc()
        return EXIT_CODES["crashed"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parity",
        description="Proves that training resumes exactly: in PyTorch, in JAX, and across the two.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands.add_parser("train", help="train a run, or go on with it"))
    _add_check(
        commands.add_parser("check", help="prove that runs resume, agree across sides, and can be handed over")
    )
    return parser


def _add_spec_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precision", choices=PRECISIONS, help="replaces the spec's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="field.name=value",
        help="override a field of the spec; repeatable",
    )
    parser.add_argument("--steps", type=_positive, metavar="N", help="where to stop")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--side", required=True, metavar="{jax,torch}")
    parser.add_argument("--spec", required=True, metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file")
    parser.add_argument("--dir", required=True, type=Path, metavar="RUN", help="run directory, created or continued")
    _add_spec_options(parser)
    parser.add_argument(
        "--resume", type=_resume, default="auto", metavar="auto|latest|best|STEP|never", help="default: auto"
    )
    parser.add_argument("--trace-state", action="store_true", help="write leaf digests to RUN/states.jsonl")
    parser.add_argument(
        "--hold-at", type=_positive, metavar="STEP", help="for drills: wait to be killed behind this step"
    )
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


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"{', '.join(CHECKS)}; default: all")
    parser.add_argument(
        "--spec",
        action="append",
        metavar="PRESET|FILE",
        help="repeatable; default: the standard matrix of presets",
    )
    parser.add_argument("--sides", default=",".join(sides.SIDES), metavar="jax,torch", help="default: both")
    _add_spec_options(parser)
    parser.add_argument("--kill-at", type=_positive, action="append", default=[], metavar="STEP", help="repeatable")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write check.json, specs and runs there")
    parser.add_argument("--json", action="store_true", help="print the JSON document on stdout, all else on stderr")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    out = sys.stderr if options.json else sys.stdout
    specs = _check_specs(options)
    steps = options.steps or DEFAULT_STEPS
    chosen = {name.strip(): sides.load(name.strip()) for name in options.sides.split(",")}
    for step in options.kill_at:
        if step >= steps:
            raise SpecError("--kill-at", f"{step} is not before the end at {steps} steps")
    environment = describe_environment() | {
        "devices": {name: side.topology(specs[0]) for name, side in chosen.items()},
        "data": {spec.name: describe_data(spec) for spec in specs},
    }
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        request = Request(
            checks=options.checks or CHECKS,
            specs=specs,
            sides=chosen,
            steps=steps,
            kills=options.kill_at,
            workdir=(options.report or Path(scratch)) / "runs",
        )
        records = run_checks(request, lambda line: print(line, file=sys.stderr, flush=True))
    text = encode(document(records, environment))
    if options.report:
        options.report.mkdir(parents=True, exist_ok=True)
        replace_file(options.report / "check.json", text + "\n")
    print_table(records, out)
    if options.json:
        print(text)
    return EXIT_CODES[overall(records)]


def _check_specs(options: argparse.Namespace) -> list[RunSpec]:
    if options.spec or options.precision:
        names = options.spec or list(PRESETS)
        return [load(name, options.precision, options.set) for name in names]
    return [override(spec, options.set) for spec in standard_matrix()]


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
