"""`parity where`: the first pair of modules of two models whose values part, and the likely cause."""

from __future__ import annotations

import argparse
import json

from parity.checks.models import open_subjects, parting_of
from parity.cli.options import local_path
from parity.cli.parser import say
from parity.cli.two_models import add_models, given_inputs, given_models
from parity.results import EXIT_CODES

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity where`."""
    add_models(parser)
    parser.add_argument(
        "--rules",
        type=local_path,
        metavar="RULES.toml",
        help="which leaf is which; by default what parity map proposes, if all of it is sure",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    found = parting_of(open_subjects(*given_models(options), given_inputs(options)), options.rules)
    if options.json:
        print(json.dumps(found.as_json(), indent=1, default=str))
    else:
        say(found.text())
    return EXIT_CODES[found.verdict]
