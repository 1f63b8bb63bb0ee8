"""`parity inspect`: what a checkpoint of any tool holds, and what a resume from it would miss."""

from __future__ import annotations

import argparse
from pathlib import Path

from parity.cli.options import local_path, print_found
from parity.convert import inspect_source, open_any
from parity.report import print_inspection
from parity.results import EXIT_CODES
from parity.runs import RunDirectory
from parity.spec import from_toml

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity inspect`."""
    parser.add_argument("path", type=local_path, metavar="PATH", help="a checkpoint of any known format, or a run")
    parser.add_argument("--all", action="store_true", help="give every leaf a row of its own, and show all rows")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    source = open_any(_checkpoint_of(options.path))
    found = inspect_source(source, every=options.all or options.json)
    print_found(found, print_inspection, options)
    return 0 if any(group.arrays or group.rows for group in found.groups) else EXIT_CODES["empty"]


def _checkpoint_of(path: Path) -> Path:
    """Return the latest checkpoint of a run directory, and any other path as it is."""
    run = RunDirectory(path)
    if not path.is_dir() or not run.exists:
        return path
    return run.checkpoints / str(run.store.choose(run.store.scan(), "latest", from_toml(run.identity_text()).plan))
