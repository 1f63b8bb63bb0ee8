"""The commands on checkpoints: `parity verify`, `path`, `export` and `metric`.

None of them imports a framework, but for an export of parameters alone, which is written by the side of the run.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from parity import sides, storage
from parity.checkpoints import (
    FILE,
    Verified,
    describe,
    identity,
    read_seal,
    require_verified,
    seal_beside,
    verify,
    verify_file,
    while_it_stays,
)
from parity.checkpoints.remote import name_of
from parity.cli.compare import compare_checkpoints
from parity.cli.foreign import is_foreign, is_other_tools, print_foreign_path, verify_foreign
from parity.cli.homes import Home, find_home, hash_of_run, home_of
from parity.cli.options import count, local_path, number, on_disk, place, word_or_step
from parity.cli.stored import print_stored_path, verify_stored
from parity.convert import with_checksums
from parity.errors import CheckpointError, RunDirectoryError, UnsealedError
from parity.formats import steps_of
from parity.policy import RANGES
from parity.report import clean, open_console
from parity.results import EXIT_CODES
from parity.runs import RunDirectory
from parity.storage import plain
from parity.storage.stores import StoreUrl

__all__ = ["add_export", "add_metric", "add_path", "add_verify"]


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
    _add_run_and_which(parser, "a directory of a run, of a manager, or that another tool fills with checkpoints")
    parser.add_argument(
        "--unread",
        action="store_true",
        help="name it by sizes and small files alone; otherwise each of its bytes is compared with its seal first",
    )
    parser.set_defaults(run=_path)


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity export`."""
    _add_run_and_which(parser)
    parser.add_argument("dest", type=local_path, metavar="DEST", help="new directory; see --only params")
    parser.add_argument(
        "--only",
        choices=("params",),
        help="export only the parameters and buffers of the model, for inference. PyTorch: a state dict in the file "
        "DEST, or safetensors if its name ends so; JAX: Orbax items in the directory DEST",
    )
    parser.set_defaults(run=_export)


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


OURS = "the directory of a run or of a manager"


def _add_run_and_which(parser: argparse.ArgumentParser, where: str = OURS) -> None:
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


def _verify(options: argparse.Namespace) -> int:
    """Print a line for each checkpoint and fault; return 0 whole, 1 damaged, 4 only unsealed, 5 no checkpoint."""
    if isinstance(options.path, StoreUrl):
        return _verify_url(options)
    console = open_console(sys.stdout)
    path = options.path
    if path.is_file() and os.path.lexists(seal_beside(path)):
        result = with_checksums(verify_file(path))
        _print_verified(console, result)
        return _code([result])
    if path.name == "checkpoints" and find_home(path.parent) is not None:
        path = path.parent  # those of the run, or of the manager, are meant
    if is_foreign(path):
        if options.against is not None:
            raise CheckpointError(f"--against compares sealed checkpoints; `parity compare {path} ...` takes any")
        steps = steps_of(path)
        return _verify_steps(console, steps) if steps else verify_foreign(console, path)
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
        return compare_checkpoints(targets[0], options.against, by_seal=False)
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
        if os.path.lexists(step / FILE) or (step.is_file() and os.path.lexists(seal_beside(step))):
            result = with_checksums(verify_file(step) if step.is_file() else verify(step))
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
        seal = result.seal
        size = sum(f.size for f in seal.files.values())
        metric = "" if seal.metric is None else f", metric {plain(seal.metric)}"
        what = f"step {seal.step}{metric}, {len(seal.files)} files, {size:,} bytes, {len(seal.leaves)} leaves"
        console.print(Text.assemble(("whole", "green"), f"      {name_of(result.path)}: {what}"), soft_wrap=True)
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
        return print_foreign_path(options.dir, options.which)
    home = home_of(options.dir)
    try:
        path = home.choose(options.which, or_next=options.or_next) if options.unread else _chosen(home, options)
        how = "a look at sizes and small files found it whole; --unread read no more" if options.unread else ""
    except UnsealedError as error:
        path, how = home.choose(options.which), f"unverified: {error}"
    print(path)
    if how:
        print(f"parity: {clean(how)}", file=sys.stderr)
    return 0


def _chosen(home: Home, options: argparse.Namespace) -> Path:
    return home.chosen(options.which, or_next=options.or_next)


def _export(options: argparse.Namespace) -> int:
    """Copy a checkpoint, or its parameters alone, to a new place; verified before and after the copy."""
    dest = options.dest
    if os.path.lexists(dest):
        raise RunDirectoryError(f"{dest} exists already and is not overwritten; give a new directory")
    options.given = options.dir
    with on_disk(options.dir, options.which, run=True) as options.dir:
        return _export_from(options)


def _export_from(options: argparse.Namespace) -> int:
    dest, home = options.dest, home_of(options.dir)
    if options.only and home.run is None:
        raise CheckpointError(
            "--only params: which item of a manager's checkpoint is the model is unknown; restore it into a "
            f"template, CheckpointManager({str(options.dir)!r}).restore(like=...), and save what is wanted"
        )
    source = _chosen(home, options)
    if options.only:
        return _export_params(options, source)
    try:
        with _draft_of(dest) as draft, while_it_stays(source):
            shutil.copytree(source, draft)
            seal = require_verified(draft)
    except shutil.Error as error:  # a list of all failures, most of them for the same reason
        file, copy, reason = error.args[0][0]
        raise OSError(f"{file} could not be copied to {copy}: {reason.partition(': ')[0]}") from error
    print(f"{dest}: step {seal.step} of {options.given}, verified")
    return 0


def _export_params(options: argparse.Namespace, source: Path) -> int:
    """Have the side of a verified checkpoint write its parameters to a draft, and give that its name."""
    seal, dest = read_seal(source), options.dest
    side = sides.load(seal.side)
    export_params: Callable[[Path, Path], None] | None = getattr(side, "export_params", None)
    if export_params is None:
        raise CheckpointError(
            f"side {seal.side!r} has no export_params; without --only the whole checkpoint is exported"
        )
    with _draft_of(dest) as draft:
        export_params(source, draft)
    print(f"{dest}: parameters of step {seal.step} of {options.given}, verified")
    print(
        "For inference only: optimizer, schedule, loss scaler, random streams, counters and the position in the data "
        "are left out, and training cannot resume from it."
    )
    return 0


@contextmanager
def _draft_of(dest: Path) -> Iterator[Path]:
    """Yield a path beside `dest`; what is written there is made durable and moved to `dest`, or else removed."""
    draft = dest.with_name(f".{os.getpid()}.{dest.name}")
    try:
        yield draft
        if draft.is_dir():
            storage.fsync_tree(draft)
        else:
            storage.fsync_files([draft])
        storage.move(draft, dest)
    finally:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


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
