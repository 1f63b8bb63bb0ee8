"""`parity bench compare`: the earlier spelling of `parity report --compare`, for two files of benchmarks."""

from __future__ import annotations

import argparse

from parity.cli.options import add_fail_on, local_path
from parity.cli.report import ALLOWED, compare_results

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `parity bench`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("compare", help="compare two files of benchmarks, as `parity report --compare` does")
    one.add_argument("old", type=local_path, metavar="OLD.json", help="what is compared with; of `make bench`")
    one.add_argument("new", type=local_path, metavar="NEW.json", help="what may have got worse")
    add_fail_on(one)
    one.set_defaults(fail_on=ALLOWED, run=lambda options: compare_results(options.old, options.new, options.fail_on))
