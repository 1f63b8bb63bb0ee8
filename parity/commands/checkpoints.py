"""Commands on checkpoints: `parity verify`, `path`, `export`, `metric`; none imports a framework."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from rich.console import Console

from parity import durable
from parity.checks.record import EXIT_CODES
from parity.commands.options import count, local_path
from parity.compare import compare
from parity.curves import plain
from parity.errors import CheckpointError, RunDirectoryError
from parity.rundir import RunDirectory
from parity.trainer import Which
from parity.verify import Verified, describe, require_verified, verify

__all__ = ["add_export", "add_metric", "add_path", "add_verify"]


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity verify`."""
    parser.add_argument(
        "path", type=local_path, metavar="PATH", help="a checkpoint, or a run directory with all of its own"
    )
    parser.add_argument(
        "--against",
        type=local_path,
        metavar="OTHER",
        help="also compare with another checkpoint, leaf by leaf, unloaded",
    )
    parser.set_defaults(run=_verify)


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity path`."""
    _add_run_and_which(parser)
    parser.set_defaults(run=_path)


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity export`."""
    _add_run_and_which(parser)
    parser.add_argument("dest", type=local_path, metavar="DEST", help="new directory")
    parser.set_defaults(run=_export)


def add_metric(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity metric`."""
    parser.add_argument("dir", type=local_path, metavar="RUN")
    parser.add_argument("step", type=count, metavar="STEP")
    parser.add_argument("value", type=float, metavar="VALUE", help="nan: not to be the best")
    parser.set_defaults(run=_metric)


def _add_run_and_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=local_path, metavar="RUN")
    parser.add_argument("which", type=_which, metavar="best|latest|STEP")


def _verify(options: argparse.Namespace) -> int:
    """Print a line for each checkpoint, and what is wrong; 0 whole, 1 damaged, 4 unsealed only, 5 nothing there."""
    console = Console(highlight=False, soft_wrap=True)
    targets = _targets(options.path)
    results = [verify(path) for path in targets]
    for result in results:
        _print_verified(console, result)
    code = _code(results)
    if options.against is not None and code == EXIT_CODES["holds"]:
        if len(targets) != 1:
            raise CheckpointError(f"--against compares single checkpoints; {options.path} holds {len(targets)}")
        require_verified(options.against)
        differences = compare(targets[0], options.against)
        for difference in differences:
            console.print(f"  {difference.leaf}: {difference.kind}: {difference.detail}", markup=False)
        console.print(f"{len(differences)} leaves differ" if differences else "every leaf is equal bit for bit")
        code = EXIT_CODES["broken"] if differences else code
    return code


def _targets(path: Path) -> list[Path]:
    if not path.is_dir():
        raise CheckpointError(f"{path} is no directory; give a checkpoint or a run")
    if not (path / "spec.toml").exists():
        return [path]
    scan = RunDirectory(path).scan()
    names = [str(s.step) for s in (*scan.whole, *scan.foreign)] + [name for name, _ in scan.damaged]
    return [path / "checkpoints" / name for name in sorted(names, key=int)]


def _print_verified(console: Console, result: Verified) -> None:
    if result.whole and result.seal is not None:
        seal = result.seal
        size = sum(f.size for f in seal.files.values())
        metric = "" if seal.metric is None else f", metric {plain(seal.metric)}"
        what = f"step {seal.step}{metric}, {len(seal.files)} files, {size:,} bytes, {len(seal.leaves)} leaves"
        console.print(f"[green]whole[/]      {result.path}: {what}")
        return
    word = "[yellow]unverified[/]" if result.foreign else "[bold red]damaged[/]   "
    console.print(f"{word} {result.path}")
    for name, problem in describe(result.faults, most=None):
        console.print(f"  {name}: {problem}", markup=False)


def _code(results: list[Verified]) -> int:
    if not results:
        return EXIT_CODES["empty"]
    if any(not r.whole and not r.foreign for r in results):
        return EXIT_CODES["broken"]
    return EXIT_CODES["inconclusive"] if any(r.foreign for r in results) else EXIT_CODES["holds"]


def _path(options: argparse.Namespace) -> int:
    print(_chosen(options))
    return 0


def _export(options: argparse.Namespace) -> int:
    """Copy a checkpoint, verified before and after, so that what is shipped is what was saved."""
    source, dest = _chosen(options), options.dest
    if os.path.lexists(dest):
        raise RunDirectoryError(f"{dest} exists already; nothing is overwritten")
    draft = dest.with_name(f".{dest.name}.{os.getpid()}")
    try:
        require_verified(source)
        shutil.copytree(source, draft)
        seal = require_verified(draft)
        durable.fsync_tree(draft)
        durable.move(draft, dest)
    except shutil.Error as error:  # holds a list of all that went wrong, most of it for the same reason
        file, copy, reason = error.args[0][0]
        raise OSError(f"{file} could not be copied to {copy}: {reason.partition(': ')[0]}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    print(f"{dest}: step {seal.step} of {options.dir}, verified")
    return 0


def _chosen(options: argparse.Namespace) -> Path:
    run = RunDirectory(options.dir)
    if not run.exists:
        raise RunDirectoryError(f"{options.dir} holds no run")
    step = run.choose(run.scan(), options.which, run.spec().metric)
    return run.checkpoints / str(step)


def _metric(options: argparse.Namespace) -> int:
    run = RunDirectory(options.dir)
    if not run.exists:
        raise RunDirectoryError(f"{options.dir} holds no run")
    run.note_metric(options.step, options.value)
    print(f"step {options.step}: {run.spec().metric} {options.value:g}")
    return 0


def _which(text: str) -> Which:
    if text in ("best", "latest"):
        return text  # type: ignore[return-value]
    if text.isascii() and text.isdigit():
        return count(text)
    raise argparse.ArgumentTypeError(f"must be best, latest or a step, got {text!r}")
