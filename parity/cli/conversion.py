"""What says of a conversion which leaf is which: the options of `parity convert` that `parity handover` has too."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity import sides
from parity.cli.options import local_path
from parity.convert import LAYOUTS, NAMES, Options, Updates, registered
from parity.errors import CheckpointError, SpecError, UnknownNameError
from parity.mapping import ConversionRules, Zeros, read_rules
from parity.state import OPTIMIZERS
from parity.storage import read_given

__all__ = ["GIVEN", "add_conversion", "conversion_options"]

MOST_NAMES = 16 << 20
"""Largest file of names, in bytes."""


GIVEN = ("rules", "keys", "names", "kind", "model", "groups", "optimizer", "reset")
"""What the options are kept as; one that was not given is None or empty."""


def add_conversion(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
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
        "--groups",
        metavar="MODULE:NAME",
        help="your own function that makes the optimizer from the module of --model, such as mine:make_optimizer: "
        "it says which parameters are in which group",
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
        "--reset",
        action="append",
        default=[],
        metavar="NAME",
        help="a leaf or a component that may be left out or stay as it was recorded; repeatable",
    )


def conversion_options(options: argparse.Namespace) -> Options:
    """Return what was asked for of a conversion.

    Raises:
        SpecError: Two options that exclude each other, or an object of the user's that cannot be used.
        CheckpointError: A file that cannot be read.
        UnknownNameError: A layout of the optimizer that is not known.
    """
    if options.names and options.model:
        raise SpecError("--model", "gives the names that --names FILE gives too: leave one")
    if options.groups and not options.model:
        raise SpecError("--groups", "makes the optimizer from a module: give --model MODULE:NAME too")
    groups = sides.named_object("--groups", options.groups) if options.groups else None
    model = registered("--model", sides.named_object("--model", options.model), groups) if options.model else None
    given = _read_names(options.names) if options.names else None
    tx = None if options.optimizer in (None, *LAYOUTS, *NAMES) else _own(options.optimizer)
    side: Any = None if tx is None else sides.load("jax")
    return Options(
        rules=read_rules(options.rules) if options.rules else ConversionRules(),
        layout=options.optimizer if options.optimizer in LAYOUTS else None,
        called=options.optimizer if options.optimizer in NAMES else "",
        template=None if tx is None else lambda params: side.optimizer_template("--optimizer", tx, params, Zeros),
        traced=None if tx is None else lambda params: side.transformations_of("--optimizer", tx, params),
        measured=None
        if tx is None
        else Updates(
            lambda params, values, grads: side.updates_of("--optimizer", tx, params, values, grads),
            lambda *given: side.updates_by_class(*given),
        ),
        names=given if model is None else model.names,
        registered=None if model is None else model.order,
        kind=options.kind or ("" if model is None else model.kind),
        reset=tuple(options.reset),
        keys=None if options.keys is None else tuple(options.keys.split(",")),
    )


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
