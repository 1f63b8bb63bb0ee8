"""The commands on checkpoints: `parity verify`, `path` and `metric`. None of them imports a framework."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from parity.checkpoints import Verified, describe, followed, identity, run_of, verify
from parity.checkpoints.remote import name_of
from parity.cli.compare import compare_checkpoints
from parity.cli.foreign import (
    checkpoints_in,
    has_seal,
    is_foreign,
    is_other_tools,
    print_foreign_path,
    verify_foreign,
    verify_sealed,
)
from parity.cli.homes import find_home, hash_of_run, home_of
from parity.cli.options import add_run_and_which, count, local_path, number, on_disk, place
from parity.cli.stored import print_stored_path, verify_stored
from parity.cli.whole import print_whole
from parity.convert import advice_of_folders, with_checksums
from parity.errors import CheckpointError, RunDirectoryError, UnsealedError
from parity.formats import steps_of
from parity.policy import RANGES
from parity.report import clean, open_console
from parity.results import EXIT_CODES
from parity.runs import RunDirectory
from parity.storage.stores import StoreUrl

__all__ = ["add_metric", "add_path", "add_verify"]


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity verify`."""
    parser.add_argument(
        "path",
        type=place,
        metavar="PATH",
        help="a checkpoint, of any known format, or a directory of a run or a manager with all of its checkpoints, "
        "each step of another tool's too; a path, or a URL of a store",
    )
    parser.add_argument(
        "--against",
        type=local_path,
        metavar="OTHER",
        help="also compare with another checkpoint, leaf by leaf, without loading either",
    )
    parser.set_defaults(run=_verify)


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity path`."""
    add_run_and_which(parser, "a directory of a run, of a manager, or that another tool fills with checkpoints")
    parser.add_argument(
        "--unread",
        action="store_true",
        help="name it by sizes and small files alone; otherwise each of its bytes is compared with its seal first",
    )
    parser.set_defaults(run=_path)


def add_metric(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity metric`."""
    parser.add_argument("dir", type=local_path, metavar="RUN", help="the directory of a run or of a manager")
    parser.add_argument("step", type=count, metavar="STEP", help="the step of a checkpoint")
    parser.add_argument(
        "value",
        type=number,
        metavar="VALUE",
        help="a value in the range of the metric, or nan so that the checkpoint is never the best",
    )
    parser.add_argument(
        "--mode", choices=("min", "max"), help="of a manager: what is better, where its best.json does not say it"
    )
    parser.set_defaults(run=_metric)


def _verify(options: argparse.Namespace) -> int:
    """Print a line for each checkpoint and fault; return 0 whole, 1 damaged, 4 only unsealed, 5 no checkpoint."""
    if isinstance(options.path, StoreUrl):
        return _verify_url(options)
    console = open_console(sys.stdout)
    path = followed(options.path)
    if path.is_file() and has_seal(path):
        result = verify_sealed(path)
        _print_verified(console, result)
        return _code([result])
    if path.name == "checkpoints" and find_home(path.parent) is not None:
        path = path.parent  # those of the run, or of the manager, are meant
    if is_foreign(path):
        if options.against is not None:
            raise CheckpointError(f"--against compares sealed checkpoints; `parity compare {path} ...` takes any")
        steps = steps_of(path)
        return _verify_steps(console, steps) if steps else verify_foreign(console, path)
    if options.against is None and is_other_tools(path) and not has_seal(path) and run_of(path) is None:
        several, others = checkpoints_in(path)
        if several:
            if others:
                shown = ", ".join(others[:6]) + (", ..." if len(others) > 6 else "")
                print(f"parity: not looked at, as of no known format: {clean(shown)}", file=sys.stderr)
            return _verify_steps(console, several)
        if advice := advice_of_folders(path):
            print(
                f"parity: {name_of(path)} holds no checkpoint itself: nothing was verified{advice}", file=sys.stderr
            )
            return EXIT_CODES["empty"]
    targets = _targets(path)
    if options.against is not None:
        _require_single(path, targets, options.against)
    home = find_home(path)
    expected = home.spec_hash() if home is not None else hash_of_run(_run_of(path))
    results = []
    for target in targets:
        before = identity(target)
        result = with_checksums(verify(target, expected))
        if not result.whole and before is not None and identity(target) != before:
            what = "removed or replaced while it was read, by a process that saves there"
            gone = f"       {clean(name_of(target))}: {what}"
            console.print(Text.assemble(("gone", "yellow"), gone), soft_wrap=True)
            continue
        results.append(result)
        _print_verified(console, result)
    missing = _missing(path)
    for line in missing:
        console.print(Text.assemble(("missing", "bold red"), f"    {line}"), soft_wrap=True)
    if not results:
        print(f"parity: {name_of(path)} holds no checkpoint: nothing was verified", file=sys.stderr)
    code = EXIT_CODES["broken"] if missing else _code(results)
    if options.against is not None and code == EXIT_CODES["holds"]:
        return compare_checkpoints(targets[0], followed(options.against), by_seal=False)
    return code


def _verify_url(options: argparse.Namespace) -> int:
    """Verify what a URL names; a checkpoint of another tool is read as it lies, on disk meanwhile."""
    if options.against is None and (code := verify_stored(options.path)) is not None:
        return code
    with on_disk(options.path) as options.path:
        return _verify(options)


def _verify_steps(console: Console, steps: list[Path]) -> int:
    """Print what is known of each step of a directory of another tool; one that cannot be opened is damaged."""
    codes = set()
    for step in steps:
        if has_seal(step):
            result = verify_sealed(step)
            _print_verified(console, result)
            codes.add(_code([result]))
            continue
        try:
            codes.add(verify_foreign(console, step))
        except CheckpointError as error:
            console.print(Text.assemble(("damaged", "bold red"), f"    {clean(name_of(step))}"), soft_wrap=True)
            console.print(Text(clean(f"  {error}")), soft_wrap=True)
            codes.add(EXIT_CODES["broken"])
    worst = [EXIT_CODES["broken"], EXIT_CODES["inconclusive"], EXIT_CODES["empty"], EXIT_CODES["holds"]]
    return next(code for code in worst if code in codes)


def _require_single(path: Path, targets: list[Path], against: Path) -> None:
    if len(targets) != 1:
        raise CheckpointError(f"--against compares single checkpoints; {path} holds {len(targets)}")
    if not against.is_dir() or RunDirectory(against).exists:
        what = "a run; name one of its checkpoints" if against.is_dir() else "not a directory; give a checkpoint"
        raise CheckpointError(f"--against {against} is {what}")


def _targets(path: Path) -> list[Path]:
    if not path.is_dir():
        problem = "is of no known format" if os.path.lexists(path) else "does not exist"
        raise CheckpointError(f"{path} {problem}; give a checkpoint, or a directory with several")
    if (home := find_home(path)) is None:
        if (path / "steps.jsonl").exists() or RunDirectory(path).store.steps():
            raise RunDirectoryError(RunDirectory(path).no_run())
        nothing = {entry.name for entry in path.iterdir()} <= {"checkpoints", "lock"}  # of a manager, before a save
        return [] if nothing and path.resolve().parent.name != "checkpoints" else [path]
    scan = home.store.scan()
    names = [str(s.step) for s in (*scan.whole, *scan.unsealed)] + [name for name, _ in scan.damaged]
    return [path / "checkpoints" / name for name in sorted(names, key=int)]


def _run_of(path: Path) -> RunDirectory:
    """Return the run that a path belongs to; the path is a run directory, or a checkpoint in one."""
    parent = path.resolve().parent
    return RunDirectory(parent.parent if parent.name == "checkpoints" else path)


def _missing(path: Path) -> list[str]:
    """Return a line for each checkpoint that a pointer of a run names and that does not exist."""
    home = find_home(path)
    if home is None:
        return []
    steps = {name: home.store.pointed_step(name) for name in ("latest", "best")}
    return [
        f"{home.store.path / str(step)}: {name}.json names it"
        for name, step in steps.items()
        if step is not None and not os.path.lexists(home.store.path / str(step))
    ]


def _print_verified(console: Console, result: Verified) -> None:
    if result.whole and result.seal is not None:
        print_whole(console, name_of(result.path), result.seal, step=result.seal.step, metric=result.seal.metric)
        return
    word = ("unverified", "yellow") if result.unsealed else ("damaged", "bold red")
    console.print(Text.assemble(word, " " * (11 - len(word[0])), name_of(result.path)), soft_wrap=True)
    for name, problem in describe(result.faults, most=None):
        console.print(Text(f"  {name}: {problem}"), soft_wrap=True)


def _code(results: list[Verified]) -> int:
    if not results:
        return EXIT_CODES["empty"]
    if any(not r.whole and not r.unsealed for r in results):
        return EXIT_CODES["broken"]
    return EXIT_CODES["inconclusive"] if any(r.unsealed for r in results) else EXIT_CODES["holds"]


def _path(options: argparse.Namespace) -> int:
    if isinstance(options.dir, StoreUrl):
        return print_stored_path(options)
    if is_other_tools(options.dir):
        return print_foreign_path(options.dir, options.which, unread=options.unread)
    home = home_of(options.dir)
    try:
        path = (
            home.choose(options.which, or_next=options.or_next)
            if options.unread
            else home.chosen(options.which, or_next=options.or_next)
        )
        how = "a look at sizes and small files found it whole; --unread read no more" if options.unread else ""
    except UnsealedError as error:
        path, how = home.choose(options.which), f"unverified: {error}"
    print(path)
    if how:
        print(f"parity: {clean(how)}", file=sys.stderr)
    return 0


def _metric(options: argparse.Namespace) -> int:
    home = home_of(options.dir, options.mode)
    metric, value = home.plan.metric, options.value
    if home.plan.mode is None:
        raise CheckpointError(
            f"{options.dir}: best.json does not say whether a larger or a smaller metric is better; --mode max or "
            "--mode min does"
        )
    low, high = RANGES.get(metric, (-math.inf, math.inf))
    if not (math.isnan(value) or (math.isfinite(value) and low <= value <= high)):
        most = f"from {low:g} to {high:g}" if math.isfinite(high) else f"finite and at least {low:g}"
        most = most if metric in RANGES else "finite"
        raise CheckpointError(
            f"VALUE {value:g}: {metric} must be {most}, or nan so that the checkpoint is never the best"
        )
    home.store.note_metric(options.step, value, home.plan)
    print(f"step {options.step}: {metric} {value:g}")
    return 0
