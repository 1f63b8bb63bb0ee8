"""`parity map`: which leaf of one model is which of another, proposed by what they do and proven."""

from __future__ import annotations

import argparse
import json

from parity.checks.models import map_opened, open_subjects
from parity.cli.options import local_path
from parity.cli.parser import say
from parity.cli.two_models import add_models, given_inputs, given_models
from parity.errors import CheckpointError, SpecError
from parity.results import EXIT_CODES
from parity.storage import replace_file

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity map`."""
    parser.add_argument(
        "checkpoint",
        nargs="?",
        type=local_path,
        metavar="CKPT",
        help="a checkpoint of the model of PyTorch, whose names and shapes are compared with the model's",
    )
    add_models(parser)
    parser.add_argument(
        "-o", dest="output", type=local_path, metavar="RULES.toml", help="write the map, as parity convert takes it"
    )
    parser.add_argument(
        "--check", type=local_path, metavar="RULES.toml", help="prove these rules, and propose nothing"
    )
    parser.add_argument("--all", action="store_true", help="print every line")
    parser.add_argument("--json", action="store_true", help="print rows and proof as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.check and options.output:
        raise SpecError("-o", "writes a map that is proposed, and --check proposes none: leave one")
    if options.output and options.output.exists():
        raise CheckpointError(f"{options.output} exists already; name a file that does not, or remove it")
    subjects = open_subjects(*given_models(options), given_inputs(options))
    mapped = map_opened(subjects, options.check, options.checkpoint)
    if options.json:
        print(json.dumps(mapped.as_json(), indent=1))
    else:
        say(mapped.text(most=100_000 if options.all else 25))
    if options.output:
        replace_file(options.output, mapped.rules_text)
    return EXIT_CODES[mapped.verdict]
