"""`parity handover`: two trainers continue from one checkpoint, the second after a conversion."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from parity import sides
from parity.checks.ports import Convert, conversion, hand_over
from parity.cli.conversion import GIVEN, add_conversion, conversion_options
from parity.cli.options import local_path
from parity.cli.parser import say
from parity.cli.two_models import ModelOption
from parity.convert import open_any
from parity.errors import SpecError
from parity.formats import FAMILIES, WRITTEN
from parity.results import EXIT_CODES

__all__ = ["add"]

DEFAULT = {"torch": "torch.save", "jax": "orbax"}
"""Framework to the format that a trainer of it reads, unless another is said."""

SPELLED = {"kind": "class"}
"""What an option is kept as, to its name where that is another."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity handover`."""
    parser.add_argument("checkpoint", type=local_path, metavar="CKPT", help="a checkpoint that one of the two saved")
    for name, what in (("torch", "PyTorch"), ("jax", "JAX")):
        parser.add_argument(
            f"--{name}",
            action=ModelOption,
            metavar="MODULE:NAME",
            help=f"a training function of {what}, train(folder, steps); two in all, of one framework the one that "
            "saved CKPT first",
        )
    parser.add_argument("--steps", type=int, required=True, metavar="N", help="completed steps at which both end")
    parser.add_argument(
        "--place",
        metavar="PATH",
        help="where the one that takes over looks for a checkpoint in its folder; parity convert writes it there",
    )
    parser.add_argument(
        "--own-place",
        metavar="PATH",
        help="where the one that saved CKPT looks for it in its folder; by default by its name",
    )
    parser.add_argument("--to", choices=tuple(WRITTEN), metavar="FORMAT", help="format of what is written at --place")
    add_conversion(parser)
    parser.add_argument(
        "--like",
        type=local_path,
        metavar="FILE",
        help="to PyTorch: a checkpoint of the one that takes over, for names",
    )
    parser.add_argument(
        "--convert",
        metavar="MODULE:NAME",
        help="your own conversion in place of parity convert: a function of two folders",
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.set_defaults(run=_run, models=[])


def _run(options: argparse.Namespace) -> int:
    (_, one), (framework, two) = _ordered(options)
    found = hand_over(
        options.checkpoint,
        one,
        two,
        convert=_convert(options, framework),
        steps=options.steps,
        place=options.own_place,
    )
    if options.json:
        print(json.dumps(dataclasses.asdict(found), indent=1, default=str))
    else:
        say(found.text())
    return EXIT_CODES[found.verdict]


def _ordered(options: argparse.Namespace) -> list[tuple[str, Any]]:
    """Return framework and function of both, the one that saved the checkpoint first.

    Raises:
        SpecError: There are not two, or one cannot be imported.
    """
    if len(options.models) != 2:
        raise SpecError(
            "trainers", f"expected two, as --torch mine:train --jax mine_jax:train, got {len(options.models)}"
        )
    found = [(framework, sides.named_object(f"--{framework}", text)) for framework, text in options.models]
    if found[0][0] != found[1][0]:
        family = FAMILIES.get(open_any(options.checkpoint).format, "")
        saved = "torch" if family == "torch" else "jax"
        found.sort(key=lambda one: one[0] != saved)
    return found


def _convert(options: argparse.Namespace, framework: str) -> Convert:
    """Return the conversion that was asked for.

    Raises:
        SpecError: None was, or two were.
    """
    if options.convert:
        given = ("place", "like", "to", *GIVEN)
        if others := [name for name in given if getattr(options, name)]:
            said = ", ".join("--" + SPELLED.get(name, name) for name in others)
            raise SpecError("--convert", f"is a conversion of your own: leave {said} out")
        made: Convert = sides.named_object("--convert", options.convert)
        return made
    if not options.place:
        raise SpecError("--place", "is needed: where the one that takes over looks for a checkpoint in its folder, "
                        "such as last.pt; or give --convert MODULE:NAME, a function of two folders")  # fmt: skip
    place = Path(options.place)
    if place.is_absolute() or ".." in place.parts:
        raise SpecError("--place", f"must lie in the trainer's folder, got {options.place!r}")
    name = options.own_place or options.checkpoint.name
    asked = conversion_options(options)
    return conversion(name, options.place, options.to or DEFAULT[framework], asked, options.like)
