"""`parity check`: prove that runs resume, agree across sides, and can be handed over."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from parity import sides
from parity.checks.record import EXIT_CODES, overall
from parity.checks.suite import CHECKS, DEFAULT_STEPS, SPEC_CHECKS, Request, run_checks, standard_matrix
from parity.commands.options import add_spec_options, local_path, positive
from parity.datasets import describe_data
from parity.durable import replace_file
from parity.errors import SpecError
from parity.report.document import describe_environment, document, encode
from parity.report.github import annotate, append_summary, quoted
from parity.report.html import check_page
from parity.report.markdown import check_markdown
from parity.report.terminal import print_table
from parity.spec import PRESETS, RunSpec
from parity.specfile import load, override

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity check`."""
    parser.add_argument(
        "checks", nargs="*", metavar="CHECK", help=f"{', '.join(CHECKS)}; default: all, policy only without --spec"
    )
    parser.add_argument(
        "--spec",
        action="append",
        metavar="PRESET|FILE",
        help="repeatable; default: the standard matrix of presets",
    )
    parser.add_argument(
        "--sides",
        default=",".join(sides.SIDES),
        metavar="SIDE,SIDE",
        help=f"default: {','.join(sides.SIDES)}; others are entry points of the group {sides.GROUP}",
    )
    add_spec_options(parser)
    parser.add_argument("--kill-at", type=positive, action="append", default=[], metavar="STEP", help="repeatable")
    parser.add_argument(
        "--report", type=local_path, metavar="DIR", help="write check.json, check.md, index.html, specs, runs"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON document on stdout, all else on stderr")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    out = sys.stderr if options.json else sys.stdout
    specs = _specs(options)
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
            checks=options.checks or (SPEC_CHECKS if options.spec else CHECKS),
            specs=specs,
            sides=chosen,
            steps=steps,
            kills=options.kill_at,
            workdir=(options.report or Path(scratch)) / "runs",
        )
        records = run_checks(request, lambda line: print(line, file=sys.stderr, flush=True))
    text, markdown = encode(document(records, environment)), check_markdown(records, environment)
    if options.report:
        options.report.mkdir(parents=True, exist_ok=True)
        replace_file(options.report / "check.json", text + "\n")
        replace_file(options.report / "check.md", markdown)
        replace_file(options.report / "index.html", check_page(records, environment))
    with quoted(out):
        print_table(records, out)
    annotate(records, out)
    append_summary(markdown)
    if options.json:
        print(text)
    return EXIT_CODES[overall(records)]


def _specs(options: argparse.Namespace) -> list[RunSpec]:
    if options.spec or options.precision:
        names = options.spec or list(PRESETS)
        return [load(name, options.precision, options.set) for name in names]
    return [override(spec, options.set) for spec in standard_matrix()]
