"""`parity spec`: every field of a spec with its value."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from parity.cli.options import add_spec_options
from parity.spec import PRESETS, load, to_toml

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity spec`."""
    parser.add_argument("spec", metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file")
    add_spec_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    spec = load(options.spec, options.precision, options.set)
    sys.stdout.write(to_toml(replace(spec, steps=options.steps) if options.steps else spec))
    return 0
