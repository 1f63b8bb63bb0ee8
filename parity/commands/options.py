"""Options that several subcommands share."""

from __future__ import annotations

import argparse

from parity.spec import PRECISIONS

__all__ = ["add_spec_options", "positive"]


def add_spec_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a spec: precision, overrides, steps."""
    parser.add_argument("--precision", choices=PRECISIONS, help="replaces the spec's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="field.name=value",
        help="override a field of the spec; repeatable",
    )
    parser.add_argument("--steps", type=positive, metavar="N", help="where to stop")


def positive(text: str) -> int:
    """Return an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
