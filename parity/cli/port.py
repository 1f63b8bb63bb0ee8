"""`parity port`: whether a port trains as its trainer does, stage by stage, or why it parts."""

from __future__ import annotations

import argparse
import json

from parity import sides
from parity.checks.models import arguments
from parity.checks.proving import NAMES, STAGES, PortSource, prove_sources
from parity.cli.options import local_path
from parity.cli.parser import say
from parity.cli.two_models import add_models, given_inputs
from parity.contract import PRECISIONS
from parity.errors import CheckpointError, SpecError
from parity.results import EXIT_CODES
from parity.storage import replace_file

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity port`."""
    add_models(parser, trainers=True)
    for word, what in NAMES.items():
        parser.add_argument(
            f"--{word.lower()}",
            action="append",
            default=[],
            metavar="NAME",
            dest=f"name_{word}",
            help=f"the name of {what}, if it is not {word}; of two that differ, once for each",
        )
    parser.add_argument(
        "--rules",
        type=local_path,
        metavar="RULES.toml",
        help="which leaf is which; by default what parity map proposes and proves",
    )
    parser.add_argument(
        "--convert",
        metavar="MODULE:NAME",
        help="for the handover: a function of two folders that reads what the first's loop saved and writes what the "
        "second's resumes from",
    )
    parser.add_argument(
        "--back",
        metavar="MODULE:NAME",
        help="the same from the second to the first; with --convert, a run goes there and back",
    )
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="updates that are compared (50)")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        metavar="TYPE",
        default="float64",
        help=f"a type in which the updates are looked at too, inside its measured envelope: {', '.join(PRECISIONS)} "
        "(float64: none)",
    )
    parser.add_argument(
        "--until", choices=STAGES, metavar="STAGE", help=f"the last stage that is looked at: {', '.join(STAGES)}"
    )
    parser.add_argument(
        "-o", dest="output", type=local_path, metavar="RULES.toml", help="write the map, as parity convert takes it"
    )
    parser.add_argument("--json", action="store_true", help="print all stages as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.output and options.output.exists():
        raise CheckpointError(f"{options.output} exists already; name a file that does not, or remove it")
    first, second = _sources(options)
    proof = prove_sources(
        first,
        second,
        inputs=given_inputs(options),
        rules=options.rules,
        steps=options.steps,
        until=options.until,
        precision=options.precision,
        convert=sides.named_object("--convert", options.convert) if options.convert else None,
        back=sides.named_object("--back", options.back) if options.back else None,
    )
    if options.json:
        print(json.dumps(proof.as_json(), indent=1))
    else:
        say(proof.text())
    if options.output and proof.rules:
        replace_file(options.output, proof.rules)
    return EXIT_CODES[proof.verdict]


def _sources(options: argparse.Namespace) -> tuple[PortSource, PortSource]:
    """Return the two trainers: one of each framework with PyTorch's first, or two of one in their order.

    Raises:
        SpecError: There are not two, or one cannot be imported.
    """
    if len(options.models) != 2:
        raise SpecError("trainers", f"expected two, as --torch mine --jax mine_jax, got {len(options.models)}")
    found = []
    used = {"torch": 0, "jax": 0}
    for place, (framework, text) in enumerate(sorted(options.models, key=lambda one: one[0] != "torch")):
        texts = getattr(options, f"{framework}_args")
        at, used[framework] = used[framework], used[framework] + 1
        args, kwargs = arguments(f"--{framework}-args", texts[at]) if at < len(texts) else ((), {})
        names = {}
        for word in NAMES:
            given = getattr(options, f"name_{word}")
            if len(given) > 2:
                raise SpecError(f"--{word.lower()}", f"is given {len(given)} times; there are two trainers")
            if given:
                names[word] = given[min(place, len(given) - 1)]
        holder = sides.named_module(f"--{framework}", text)
        found.append(PortSource(f"--{framework}", text, holder, names, args, kwargs))
    return found[0], found[1]
