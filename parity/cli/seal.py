"""`parity seal`: a seal for a checkpoint that another tool saved."""

from __future__ import annotations

import argparse

from parity.cli.options import place
from parity.convert import seal_checkpoint, seal_stored
from parity.report import clean
from parity.results import EXIT_CODES
from parity.storage.stores import StoreUrl

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity seal`."""
    parser.add_argument(
        "path",
        type=place,
        metavar="PATH",
        help="a checkpoint of another tool, of any format that inspect knows; a path, or a URL of a store",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="where the checkpoint has a seal that does not fit: seal what is there now",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    given = options.path
    seal = seal_stored if isinstance(given, StoreUrl) else seal_checkpoint
    made = seal(given, replace=options.replace)
    size = sum(file.size for file in made.files.values())
    count = len(made.files)
    files = "1 file" if count == 1 else f"{count:,} files"
    print(f"sealed      {clean(given)}: {files}, {size:,} bytes; what it held before that is unknown")
    return EXIT_CODES["holds"]
