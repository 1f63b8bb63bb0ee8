"""`parity convert` and `parity rules`: a checkpoint in another format, with a line for every leaf."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial

from parity.cli.conversion import add_conversion, conversion_options
from parity.cli.options import local_path, on_disk, place, print_found
from parity.convert import (
    JAX_PARTS,
    convert,
    open_any,
    read_torch_state,
    writer_of,
)
from parity.errors import CheckpointError, SpecError
from parity.formats import FAMILIES, WRITTEN
from parity.mapping import CLASSES, read_rules
from parity.report import print_ledger, print_placements, quoted
from parity.results import EXIT_CODES

__all__ = ["add", "add_rules"]

FORMATS = tuple(sorted(WRITTEN, key=lambda name: FAMILIES[name] != "torch"))
"""Those of `--to`, PyTorch's first."""

ALLOWED = tuple(kind for kind in CLASSES if kind != "equivariant")
"""Classes of rules that a training state takes only where they are asked for."""

SHORT = {"torch": "torch.save"}
"""What else a format is called."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity convert`."""
    parser.add_argument(
        "source", type=place, metavar="SRC", help="a checkpoint of any known format; a path, or a URL of a store"
    )
    parser.add_argument("target", type=local_path, metavar="DST", help="a path that does not exist")
    parser.add_argument(
        "--to",
        required=True,
        type=_format,
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format of DST: {', '.join(FORMATS)}; torch is torch.save",
    )
    add_conversion(parser)
    parser.add_argument(
        "--as",
        dest="parts",
        type=_part,
        action="append",
        default=[],
        metavar="NAME=KEY",
        help=f"what a part of a JAX SRC is called there, where it is not by its name ({', '.join(JAX_PARTS)}): "
        "params=model, opt_state=state.opt; repeatable",
    )
    parser.add_argument("--only", choices=("params",), help="the parameters alone, to ship them")
    parser.add_argument(
        "--like",
        type=local_path,
        metavar="FILE",
        help="from JAX to PyTorch: a PyTorch checkpoint of the same model and optimizer, for names and groups",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=ALLOWED,
        metavar="CLASS",
        help=f"allow rules of this class for a training state too: {', '.join(ALLOWED)}; repeatable",
    )
    parser.add_argument("--all", action="store_true", help="print a line for every leaf")
    parser.add_argument("--json", action="store_true", help="print the ledger as JSON")
    parser.set_defaults(run=_run)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity rules`."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    one = actions.add_parser(
        "check",
        help="check that rules take every parameter once and lead back, and print where each goes",
        description="Check that rules take every parameter of a PyTorch checkpoint once and lead back.",
    )
    one.add_argument("rules", type=local_path, metavar="RULES.toml", help="the rules")
    one.add_argument("source", type=local_path, metavar="SRC", help="a PyTorch checkpoint")
    one.add_argument(
        "--complete", action="store_true", help="every parameter must have a rule; else it keeps its name"
    )
    one.set_defaults(run=_check_rules)


def _format(text: str) -> str:
    return SHORT.get(text, text)


def _part(text: str) -> tuple[str, str]:
    name, equals, key = text.partition("=")
    if not equals or not key or name not in JAX_PARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=KEY with NAME one of {', '.join(JAX_PARTS)}")
    return name, key


def _run(options: argparse.Namespace) -> int:
    if len(dict(options.parts)) < len(options.parts):
        raise SpecError("--as", "names one part twice")
    asked = replace(
        conversion_options(options),
        only_params=options.only == "params",
        allow=tuple(options.allow),
        parts=dict(options.parts),
    )
    writer = writer_of(options.to)
    with on_disk(options.source) as source:
        ledger = convert(source, options.target, writer, asked, like=options.like, now=time.time())
    print_found(ledger, partial(print_ledger, str(options.target)), options)
    if ledger.refused:
        return EXIT_CODES["broken"]
    if not ledger.crossed:
        what = "holds nothing" if not ledger.entries else "holds nothing that was asked for"
        print(f"parity: {options.source} {what}: nothing was converted", file=sys.stderr)
        return EXIT_CODES["empty"]
    return EXIT_CODES["holds"]


def _check_rules(options: argparse.Namespace) -> int:
    rules = read_rules(options.rules)
    state = read_torch_state(open_any(options.source).tree, alone=True)
    placements = rules.place(list(state.model))
    problems = []
    for placement in placements:
        arrays = [state.model[name] for name in placement.source]
        if options.complete and placement.rule not in rules.rules:
            problems.append((placement.source[0], "no rule takes it"))
        try:
            made = placement.forward(arrays)
            back = placement.backward(made, [array.shape for array in arrays])
        except CheckpointError as error:
            problems.append((placement.source[0], str(error)))
            continue
        if [(a.shape, a.dtype) for a in back] != [(a.shape, a.dtype) for a in arrays]:
            problems.append((placement.source[0], f"comes back as {', '.join(map(str, back))}"))
    with quoted(sys.stdout):
        print_placements(placements, state.model, problems, sys.stdout)
    return EXIT_CODES["broken" if problems else "holds"]
