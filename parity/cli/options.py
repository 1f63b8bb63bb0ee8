"""Options that several subcommands share, and what their values must be."""

from __future__ import annotations

import argparse
import math
import os
import threading
from pathlib import Path

from parity import storage
from parity.errors import RunDirectoryError
from parity.policy import INT32
from parity.spec import PRECISIONS

__all__ = ["add_spec_options", "count", "deadline", "directory", "local_path", "positive", "seconds"]


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


def local_path(text: str) -> Path:
    """Return a path of the local file system."""
    try:
        return storage.local_path(text)
    except RunDirectoryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def directory(text: str) -> Path:
    """Return a local path that is a directory, or at which one can be created."""
    path = local_path(text)
    found = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
    if os.path.lexists(found) and not os.path.isdir(found):
        raise argparse.ArgumentTypeError(f"{found} is not a directory; name another one")
    return path


def positive(text: str) -> int:
    """Return an integer of at least 1, such as a step."""
    return _integer(text, 1)


def count(text: str) -> int:
    """Return an integer of at least 0."""
    return _integer(text, 0)


def seconds(text: str) -> float:
    """Return a finite time of at least 0."""
    value = _number(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be a time of at least 0 seconds, got {text[:40]}")
    return value


def deadline(text: str) -> float:
    """Return a time that a timer can wait."""
    value = _number(text)
    if not 0 < value <= threading.TIMEOUT_MAX:
        most = f"{threading.TIMEOUT_MAX:.0f}"
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {most} seconds, got {text[:40]}")
    return value


def _integer(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:  # more than 4,300 digits too
        value = -1
    if not least <= value <= INT32:
        raise argparse.ArgumentTypeError(f"must be an integer from {least} to {INT32}, got {text[:40]}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
