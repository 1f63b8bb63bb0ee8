"""Commands on checkpoints: `parity verify`, `path`, `export`, `metric`; none imports a framework."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from pathlib import Path

from rich.console import Console

from parity import storage
from parity.checkpoints import Verified, compare, describe, require_verified, verify
from parity.cli.options import count, local_path
from parity.errors import CheckpointError, DamagedError, ParityError, RunDirectoryError
from parity.policy import RANGES, Which
from parity.results import EXIT_CODES
from parity.runs import RunDirectory
from parity.spec import meaning_hash
from parity.storage import plain
from parity.twins import describe_data

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
    parser.add_argument(
        "value", type=float, metavar="VALUE", help="within the range of the metric; nan: not to be the best"
    )
    parser.set_defaults(run=_metric)


def _add_run_and_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=local_path, metavar="RUN")
    parser.add_argument("which", type=_which, metavar="best|latest|STEP")
    parser.add_argument(
        "--or-next",
        action="store_true",
        help="where the best, or the latest, is damaged or gone: take the next one that is whole",
    )


def _verify(options: argparse.Namespace) -> int:
    """Print a line for each checkpoint, and what is wrong; 0 whole, 1 damaged, 4 unsealed only, 5 nothing there."""
    console = Console(highlight=False, soft_wrap=True)
    targets = _targets(options.path)
    spec_hash = _spec_hash(_run_of(options.path))
    results = [verify(path, spec_hash) for path in targets]
    for result in results:
        _print_verified(console, result)
    missing = _missing(options.path, targets)
    for line in missing:
        console.print(f"[bold red]missing[/]    {line}")
    if not results:
        print(f"parity: {options.path} holds no checkpoint", file=sys.stderr)
    code = EXIT_CODES["broken"] if missing else _code(results)
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
        if (path / "checkpoints").is_dir() or (path / "steps.jsonl").exists():
            raise RunDirectoryError(RunDirectory(path).no_run())
        return [path]
    scan = RunDirectory(path).scan()
    names = [str(s.step) for s in (*scan.whole, *scan.foreign)] + [name for name, _ in scan.damaged]
    return [path / "checkpoints" / name for name in sorted(names, key=int)]


def _run_of(path: Path) -> RunDirectory:
    """Return the run of a path: a run directory, or a checkpoint in one."""
    parent = path.resolve().parent
    return RunDirectory(parent.parent if parent.name == "checkpoints" else path)


def _spec_hash(run: RunDirectory) -> str | None:
    """Return the hash that the checkpoints of a run must have; None where it cannot be known, which is said."""
    if not run.exists:
        return None
    try:
        spec = run.spec()
        return run.spec_hash() or meaning_hash(spec, describe_data(spec)["digest"])
    except (ParityError, ImportError) as error:
        print(f"parity: warning: not compared with the run they are in: {error}", file=sys.stderr)
        return None


def _missing(path: Path, targets: list[Path]) -> list[str]:
    """Return a line for each checkpoint that a pointer of a run names and that is not there."""
    run, there = RunDirectory(path), {target.name for target in targets}
    steps = {name: run.pointed_step(name) for name in ("latest", "best") if run.exists}
    return [
        f"{run.checkpoints / str(step)}: {name}.json names it"
        for name, step in steps.items()
        if step is not None and str(step) not in there
    ]


def _print_verified(console: Console, result: Verified) -> None:
    if result.whole and result.seal is not None:
        seal = result.seal
        size = sum(f.size for f in seal.files.values())
        metric = "" if seal.metric is None else f", metric {plain(seal.metric)}"
        what = f"step {seal.step}{metric}, {len(seal.files)} files, {size:,} bytes, {len(seal.leaves)} leaves"
        console.print(f"[green]whole[/]      {result.path}: {what}")
        return
    word = "[yellow]unverified[/]" if result.unsealed else "[bold red]damaged[/]   "
    console.print(f"{word} {result.path}")
    for name, problem in describe(result.faults, most=None):
        console.print(f"  {name}: {problem}", markup=False)


def _code(results: list[Verified]) -> int:
    if not results:
        return EXIT_CODES["empty"]
    if any(not r.whole and not r.unsealed for r in results):
        return EXIT_CODES["broken"]
    return EXIT_CODES["inconclusive"] if any(r.unsealed for r in results) else EXIT_CODES["holds"]


def _path(options: argparse.Namespace) -> int:
    print(_chosen(options))
    return 0


def _export(options: argparse.Namespace) -> int:
    """Copy a checkpoint, verified before and after, so that what is shipped is what was saved."""
    dest = options.dest
    if os.path.lexists(dest):
        raise RunDirectoryError(f"{dest} exists already; nothing is overwritten")
    source = _chosen(options, verified=True)
    draft = dest.with_name(f".{dest.name}.{os.getpid()}")
    try:
        shutil.copytree(source, draft)
        seal = require_verified(draft)
        storage.fsync_tree(draft)
        storage.move(draft, dest)
    except shutil.Error as error:  # holds a list of all that went wrong, most of it for the same reason
        file, copy, reason = error.args[0][0]
        raise OSError(f"{file} could not be copied to {copy}: {reason.partition(': ')[0]}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    print(f"{dest}: step {seal.step} of {options.dir}, verified")
    return 0


def _chosen(options: argparse.Namespace, *, verified: bool = False) -> Path:
    """Return the checkpoint that is asked for, compared with its seal byte by byte if it is to be shipped."""
    run = _existing(options.dir)
    scan, metric = run.scan(), run.spec().metric
    while True:
        step = run.choose(scan, options.which, metric, or_next=options.or_next)
        path = run.checkpoints / str(step)
        if not verified:
            return path
        try:
            require_verified(path)
            return path
        except DamagedError as error:
            if isinstance(options.which, int):
                raise
            scan = scan.without(step, str(error))


def _existing(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    if not run.exists:
        raise RunDirectoryError(run.no_run())
    return run


def _metric(options: argparse.Namespace) -> int:
    run = _existing(options.dir)
    metric, value = run.spec().metric, options.value
    low, high = RANGES[metric]
    if not (math.isnan(value) or (math.isfinite(value) and low <= value <= high)):
        most = f"from {low:g} to {high:g}" if math.isfinite(high) else f"finite and at least {low:g}"
        raise CheckpointError(f"VALUE {value:g}: {metric} must be {most}, or nan for a checkpoint that is never best")
    run.note_metric(options.step, value)
    print(f"step {options.step}: {metric} {value:g}")
    return 0


def _which(text: str) -> Which:
    if text in ("best", "latest"):
        return text  # type: ignore[return-value]
    if text.isascii() and text.isdigit():
        return count(text)
    raise argparse.ArgumentTypeError(f"must be best, latest or a step, got {text!r}")
