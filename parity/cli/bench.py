"""`parity bench run`: the steps per second of a side, measured; `bench compare`, a former name, names `compare`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from parity import sides
from parity.cli.options import add_spec_options, local_path, positive, require_file
from parity.cli.parser import say
from parity.contract import prepare_process
from parity.errors import SpecError
from parity.report import clean, print_speeds, quoted
from parity.results import decode_benchmarks, encode
from parity.spec import PRESETS, load
from parity.storage import replace_file
from parity.twins import batches_per_epoch
from parity.twins.speed import MODES, STEPS, measure_speed

__all__ = ["add"]

ROUNDS = 5
"""Timed rounds by default: with fewer, `parity compare` finds few differences."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `parity bench`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser(
        "run", help="measure steps per second: scan and loop in JAX, compiled and eager in PyTorch"
    )
    one.add_argument("--side", required=True, choices=tuple(MODES), help="whose trainer is measured")
    one.add_argument(
        "--spec",
        default="mlp-digits",
        metavar="PRESET|FILE",
        help=f"{', '.join(PRESETS)}, or a TOML file; default: mlp-digits",
    )
    add_spec_options(one)
    one.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"timed rounds; default {ROUNDS}")
    one.add_argument(
        "--mode",
        action="append",
        metavar="MODE",
        help="measure this way alone: scan or loop, compiled or eager; repeatable; default: both, and their ratio",
    )
    one.add_argument(
        *("-o", "--output"),
        type=local_path,
        metavar="FILE",
        help="write JSON as pytest-benchmark does, for `compare`",
    )
    one.set_defaults(run=_run, usage_error=one.error)
    former = commands.add_parser("compare", help="its name is `parity compare OLD.json NEW.json`")
    former.add_argument("words", nargs=argparse.REMAINDER, help="what `parity compare` takes")
    former.add_argument("--fail-on", help=argparse.SUPPRESS)
    former.set_defaults(run=lambda options: former.error("use `parity compare OLD.json NEW.json`"))


def _run(options: argparse.Namespace) -> int:
    known = MODES[options.side]
    for mode in options.mode or ():
        if mode not in known:
            raise SpecError("--mode", f"{options.side} has {' and '.join(known)}, not {mode[:40]!r}")
    if options.output is not None:
        require_file("--output", options.output, options.usage_error)
    side = sides.load(options.side)
    prepare_process(side)
    found = measure_speed(
        side,
        options.side,
        load(options.spec, options.precision, options.set, batches_per_epoch),
        modes=[mode for mode in known if mode in (options.mode or known)],
        steps=options.steps or STEPS,
        rounds=options.rounds,
        say=partial(say, file=sys.stderr),
    )
    if options.output is not None:
        replace_file(options.output, encode(found) + "\n")
    _show(found, options.output)
    return 0


def _show(found: dict[str, Any], output: Path | None) -> None:
    with quoted(sys.stdout):
        print_speeds(decode_benchmarks(Path("measured"), found), sys.stdout)
        if output is not None:
            print(f"wrote {clean(str(output))}")
