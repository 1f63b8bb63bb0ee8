"""What several subcommands share: options, the types of their values, a run with its plan, output as JSON."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity import storage
from parity.checkpoints import followed, mode_in, remote
from parity.checkpoints.trees import BEST
from parity.contract import RunPlan
from parity.errors import RunDirectoryError, similar
from parity.policy import INT32, Mode, Which
from parity.report import quoted
from parity.runs import RunDirectory
from parity.spec import PRECISIONS, from_toml
from parity.storage.stores import StoreUrl, is_url, parse_url

__all__ = [
    "add_fail_on",
    "add_run_and_which",
    "add_spec_options",
    "count",
    "deadline",
    "directory",
    "directory_or_url",
    "local_path",
    "mode_of_run",
    "number",
    "on_disk",
    "place",
    "positive",
    "print_found",
    "require_file",
    "run_and_plan",
    "seconds",
    "store_url",
    "tolerance",
    "word_or_step",
]

SPEC = "spec.toml"


def add_spec_options(parser: argparse.ArgumentParser, *, epochs: bool = False) -> None:
    """Add the options that change a spec: precision, overrides, and where to stop.

    Args:
        parser: Takes the options.
        epochs: Whether the end can be given in epochs too; not together with steps.
    """
    parser.add_argument(
        "--precision", choices=PRECISIONS, metavar="TYPE", help=f"{', '.join(PRECISIONS)}; replaces the spec's own"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="field.name=value",
        help="override a field of the spec; repeatable",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--steps", type=positive, metavar="N", help="where to stop")
    if epochs:
        end.add_argument("--epochs", type=positive, metavar="N", help="where to stop, in epochs of the data")


def local_path(text: str) -> Path:
    """Return a path of the local file system.

    Raises:
        argparse.ArgumentTypeError: The text is a URL.
    """
    try:
        return storage.local_path(text)
    except RunDirectoryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def place(text: str) -> Path | StoreUrl:
    """Return a path of the local file system, or a place in a store.

    Raises:
        argparse.ArgumentTypeError: The text is a URL of another kind, or one that cannot be.
    """
    return store_url(text) if is_url(text) else local_path(text)


def store_url(text: str) -> StoreUrl:
    """Return a place in a store.

    Raises:
        argparse.ArgumentTypeError: The text is no URL of one.
    """
    try:
        return parse_url(text)
    except RunDirectoryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@contextmanager
def on_disk(given: Path | StoreUrl, which: Which = "latest", *, run: bool = False) -> Iterator[Path]:
    """Yield where something lies on disk: a path, or what a URL names for the time of the block.

    A link to the sealed directory of a checkpoint is followed; any other path is as it is.

    Args:
        given: What was given.
        which: Of a run at a store, the checkpoint that is fetched.
        run: Whether its directory is wanted, with its records; else the checkpoint alone.

    Raises:
        CheckpointError: It is not there, or damaged.
        StoreError: The store refused or was not reached.
    """
    if isinstance(given, Path):
        yield followed(given)
        return
    mode = mode_of_run(given) if which == "best" else None
    with remote.on_disk(given, which, mode, run=run) as path:
        yield path


def mode_of_run(url: StoreUrl) -> Mode | None:
    """Return by what the best checkpoint at a place in a store is the best: of a run, or of a manager.

    None where nothing says it, and for what is neither.

    Raises:
        StoreError: The store refused or was not reached.
    """
    found = remote.locate(url)
    if found.head is None or not found.head.checkpoints:
        return None
    newest = found.head.checkpoints[max(found.head.checkpoints)]
    records = found.store.at(newest.folder).at("records")
    if SPEC in newest.records:
        text, _ = records.read(SPEC)
        return from_toml(text.decode("utf-8-sig")).plan.mode
    if BEST in newest.records:
        data, _ = records.read(BEST)
        return mode_in(storage.parse_json(data, f"{records.url}/{BEST}"))
    return None


def directory(text: str) -> Path:
    """Return a local path that is a directory, or at which one can be created.

    Raises:
        argparse.ArgumentTypeError: The text is a URL; or the path, or the nearest one above it that exists, is no
            directory.
    """
    path = local_path(text)
    found = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
    if os.path.lexists(found) and not os.path.isdir(found):
        raise argparse.ArgumentTypeError(f"{found} is not a directory; name another one")
    return path


def directory_or_url(text: str) -> Path | StoreUrl:
    """Return what `directory` does, or a place in a store.

    Raises:
        argparse.ArgumentTypeError: The text is neither.
    """
    return store_url(text) if is_url(text) else directory(text)


def positive(text: str) -> int:
    """Return an integer of at least 1, such as a step.

    Raises:
        argparse.ArgumentTypeError: The text is none, or one beyond int32.
    """
    return _integer(text, 1)


def count(text: str) -> int:
    """Return an integer of at least 0.

    Raises:
        argparse.ArgumentTypeError: The text is none, or one beyond int32.
    """
    return _integer(text, 0)


def seconds(text: str) -> float:
    """Return a finite time of at least 0, in seconds.

    Raises:
        argparse.ArgumentTypeError: The text is none.
    """
    return _not_negative(text, "a time of at least 0 seconds")


def tolerance(text: str) -> float:
    """Return a finite difference of at least 0.

    Raises:
        argparse.ArgumentTypeError: The text is none.
    """
    return _not_negative(text, "a difference of at least 0, such as 1e-6")


def deadline(text: str) -> float:
    """Return a time in seconds for which a timer can wait.

    Raises:
        argparse.ArgumentTypeError: The text is no number, not above 0, or beyond `threading.TIMEOUT_MAX`.
    """
    value = _number(text)
    if not 0 < value <= threading.TIMEOUT_MAX:
        most = f"{threading.TIMEOUT_MAX:.0f}"
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {most} seconds, got {text[:40]}")
    return value


def _allowed(text: str) -> float:
    """Return the relative change that `ratio:5%` allows, as a fraction."""
    kind, _, rest = text.partition(":")
    if kind == "time":
        raise argparse.ArgumentTypeError(
            "times are recorded and never judged, they are the machine's; ask for ratio:5%"
        )
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)%", rest, re.ASCII)
    if kind != "ratio" or found is None:
        raise argparse.ArgumentTypeError(f"must be like ratio:5%, got {text!r}")
    return float(found[1]) / 100


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    """Add the option that decides when a comparison of benchmarks fails."""
    parser.add_argument(
        "--fail-on",
        type=_allowed,
        metavar="ratio:P%",
        help="of benchmarks: exit with 1 where a ratio got worse by more than P %% and its quartile range lies "
        "outside of the old one (default ratio:5%%)",
    )


def number(text: str) -> float:
    """Return a number, which may be infinite or nan.

    Raises:
        argparse.ArgumentTypeError: The text is none.
    """
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text[:40]!r}") from None


def word_or_step(*words: str) -> Callable[[str], Any]:
    """Return the type of an option that is one of some words or a step.

    Args:
        words: The words, which it returns as they are.
    """

    def parse(text: str) -> str | int:
        if text in words:
            return text
        if text.isascii() and text.isdigit():
            return count(text)
        close = similar(text, list(words))
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        raise argparse.ArgumentTypeError(f"must be {', '.join(words)} or a step, got {text!r}{meant}")

    parse.words = words  # type: ignore[attr-defined]  # for the completion
    return parse


def run_and_plan(path: Path) -> tuple[RunDirectory, RunPlan]:
    """Return the run in a directory, and its plan.

    Raises:
        RunDirectoryError: There is no run.
    """
    run = RunDirectory(path)
    if not run.exists:
        raise RunDirectoryError(run.no_run())
    return run, from_toml(run.identity_text()).plan


def print_found(found: Any, show: Callable[..., None], options: argparse.Namespace) -> None:
    """Print what a command found: as JSON with --json, else as `show` prints it, all of it with --all.

    Args:
        found: Has a method `as_json`.
        show: Called with what was found, the stream, and `every`.
        options: Those of the command.
    """
    with quoted(sys.stdout):
        if options.json:
            print(json.dumps(found.as_json(), indent=1))
        else:
            show(found, sys.stdout, every=options.all)


def require_file(option: str, file: Path, refuse: Callable[[str], object]) -> None:
    """Refuse a file that cannot be written, before anything is done.

    Args:
        option: The option that names it, for messages.
        file: The file.
        refuse: Takes why, and ends the command.
    """
    if not file.name or file.is_dir():
        refuse(f"{option} {file} is a directory; name a file in it, like {file / 'result'}")
    if not file.parent.is_dir():
        refuse(f"{option} {file}: {file.parent} is not a directory; create it, or name another file")
    if file.exists() and not file.is_file():  # a rename onto it would remove /dev/null
        refuse(f"{option} {file} is no regular file, and would be replaced by one; name another")


def _not_negative(text: str, what: str) -> float:
    value = _number(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be {what}, got {text[:40]}")
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


def add_run_and_which(parser: argparse.ArgumentParser, where: str = "the directory of a run or of a manager") -> None:
    """Add a directory, which of its checkpoints is meant, and whether the next whole one does.

    Args:
        parser: That of the command.
        where: What the directory is.
    """
    parser.add_argument("dir", type=place, metavar="RUN", help=f"{where}; a path, or the URL of a run at a store")
    parser.add_argument(
        "which",
        type=word_or_step("best", "latest"),
        metavar="best|latest|STEP",
        help="the best checkpoint, the latest, or that of a step",
    )
    parser.add_argument(
        "--or-next",
        action="store_true",
        help="if the best, or the latest, is damaged or missing, take the next one that is whole",
    )
