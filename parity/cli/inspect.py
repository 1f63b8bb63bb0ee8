"""`parity inspect`: what a checkpoint of any tool holds, and what a resume from it would miss."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from parity.cli.homes import find_home
from parity.cli.options import on_disk, place, print_found
from parity.convert import inspect_source, open_any
from parity.errors import CheckpointError
from parity.report import print_inspection
from parity.results import EXIT_CODES
from parity.storage.stores import StoreUrl

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity inspect`."""
    parser.add_argument(
        "path",
        type=place,
        metavar="PATH",
        help="a checkpoint of any known format, a run, or a manager; a path, or a URL of a store",
    )
    parser.add_argument("--all", action="store_true", help="give every leaf a row of its own, and show all rows")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with on_disk(options.path) as path, _without_collection():
        source = open_any(_checkpoint_of(path))
        found = inspect_source(source, every=options.all or options.json)
        if isinstance(options.path, StoreUrl):
            found = replace(found, path=str(options.path))
    print_found(found, print_inspection, options)
    known = sum(row.count for group in found.groups for row in group.rows) - len(found.opaque)
    return 0 if known else EXIT_CODES["empty"]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Have no cycles looked for: of the millions of objects of a description none is one, and each is kept."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _checkpoint_of(path: Path) -> Path:
    """Return the latest checkpoint of a run or a manager, and any other path as it is.

    What is printed comes from its description, so a look at its files is enough; one without a seal is taken where
    there is no other.
    """
    if (home := find_home(path)) is None:
        return path
    try:
        return home.choose("latest")
    except CheckpointError:
        scan = home.store.scan()
        if scan.whole or not scan.unsealed:
            raise
        newest = home.store.path / str(max(saved.step for saved in scan.unsealed))
        print(f"parity: {newest} has no seal: what follows is what its files say", file=sys.stderr)
        return newest
