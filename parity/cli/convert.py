"""`parity convert` and `parity rules`: a checkpoint in another format, with a line for every leaf."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from parity import sides
from parity.cli.options import local_path, on_disk, place, print_found
from parity.convert import (
    JAX_PARTS,
    LAYOUTS,
    NAMES,
    Options,
    convert,
    open_any,
    read_torch_state,
    registered,
    writer_of,
)
from parity.errors import CheckpointError, SpecError, UnknownNameError
from parity.formats import FAMILIES, WRITTEN
from parity.mapping import CLASSES, ConversionRules, Zeros, read_rules
from parity.report import print_ledger, print_placements, quoted
from parity.results import EXIT_CODES
from parity.state import OPTIMIZERS
from parity.storage import read_given

__all__ = ["add", "add_rules"]

FORMATS = tuple(sorted(WRITTEN, key=lambda name: FAMILIES[name] != "torch"))
"""Those of `--to`, PyTorch's first."""

ALLOWED = tuple(kind for kind in CLASSES if kind != "equivariant")
"""Classes of rules that a training state takes only where they are asked for."""

SHORT = {"torch": "torch.save"}
"""What else a format is called."""

MOST_NAMES = 16 << 20
"""Largest file of names, in bytes."""


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
    parser.add_argument(
        "--rules",
        type=local_path,
        metavar="RULES.toml",
        help="which PyTorch parameter is which JAX leaf (docs/formats.md)",
    )
    parser.add_argument(
        "--keys",
        metavar="KEY,KEY",
        help="only these keys of SRC, dotted where they lie deeper, such as one model and its optimizer of several: "
        "state_dict,optimizer_states.0",
    )
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
        "--names",
        type=local_path,
        metavar="FILE",
        help="names of the optimizer's parameters in its order, one a line",
    )
    parser.add_argument(
        "--class",
        dest="kind",
        choices=[kind.name for kind in OPTIMIZERS.values() if kind.in_torch],
        metavar="CLASS",
        help="class of torch.optim of the optimizer of PyTorch, such as RAdam, where neither its arguments nor its "
        "state tell it",
    )
    parser.add_argument(
        "--model",
        metavar="MODULE:NAME",
        help="your own module, such as mine:Model, or a function that makes it, alone or with its optimizer: it is "
        "built for the names of the optimizer's parameters",
    )
    parser.add_argument(
        "--optimizer",
        metavar="LAYOUT",
        help="layout of the optimizer in JAX: optax (its own types), parity (those of our optimizers, which hold "
        "every state), or MODULE:NAME, your own transformation such as mine:tx, whose init gives the tree that is "
        "filled; optax by default where it can hold the state. From JAX to PyTorch: the function of Optax that made "
        f"the state ({', '.join(NAMES)}), or MODULE:NAME, as their states have the same fields",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=ALLOWED,
        metavar="CLASS",
        help=f"allow rules of this class for a training state too: {', '.join(ALLOWED)}; repeatable",
    )
    parser.add_argument(
        "--reset",
        action="append",
        default=[],
        metavar="NAME",
        help="a leaf or a component that may be left out or stay as it was recorded; repeatable",
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
    if options.names and options.model:
        raise SpecError("--model", "gives the names that --names FILE gives too: leave one")
    model = registered("--model", sides.named_object("--model", options.model)) if options.model else None
    given = _read_names(options.names) if options.names else None
    tx = None if options.optimizer in (None, *LAYOUTS, *NAMES) else _own(options.optimizer)
    side: Any = None if tx is None else sides.load("jax")
    asked = Options(
        rules=read_rules(options.rules) if options.rules else ConversionRules(),
        only_params=options.only == "params",
        layout=options.optimizer if options.optimizer in LAYOUTS else None,
        called=options.optimizer if options.optimizer in NAMES else "",
        template=None if tx is None else lambda params: side.optimizer_template("--optimizer", tx, params, Zeros),
        traced=None if tx is None else lambda params: side.transformations_of("--optimizer", tx, params),
        names=given if model is None else model.names,
        registered=None if model is None else model.order,
        kind=options.kind or ("" if model is None else model.kind),
        allow=tuple(options.allow),
        reset=tuple(options.reset),
        keys=None if options.keys is None else tuple(options.keys.split(",")),
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


def _own(text: str) -> Any:
    """Return the user's own transformation.

    Raises:
        SpecError: There is no such object.
        UnknownNameError: It is neither a layout, nor a function of Optax, nor MODULE:NAME.
    """
    if ":" not in text:
        raise UnknownNameError("value of --optimizer", text, [*LAYOUTS, *NAMES, "MODULE:NAME"])
    return sides.named_object("--optimizer", text)


def _read_names(path: Path) -> list[str]:
    try:
        lines = read_given(path, MOST_NAMES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return [line.strip() for line in lines if line.strip()]


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
