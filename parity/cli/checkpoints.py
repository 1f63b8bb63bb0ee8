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
    Verified,
    describe,
    read_seal,
    require_verified,
    seal_beside,
    verify,
    verify_file,
)
from parity.cli.compare import compare_checkpoints
from parity.cli.foreign import is_foreign, is_other_tools, print_foreign_path, verify_foreign
from parity.cli.options import count, local_path, number, run_and_plan, word_or_step
from parity.errors import CheckpointError, DamagedError, ParityError, RunDirectoryError
from parity.policy import RANGES
from parity.report import open_console
from parity.results import EXIT_CODES
from parity.runs import RunDirectory
from parity.spec import from_toml, spec_hash
from parity.storage import plain
from parity.twins import describe_data

__all__ = ["add_export", "add_metric", "add_path", "add_verify"]


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity verify`."""
    parser.add_argument(
        "path",
        type=local_path,
        metavar="PATH",
        help="a checkpoint, of any known format, or a run directory with all of its checkpoints",
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
    _add_run_and_which(parser, "a run directory, or one that another tool fills with checkpoints")
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
    parser.add_argument("dir", type=local_path, metavar="RUN", help="a run directory")
    parser.add_argument("step", type=count, metavar="STEP", help="the step of a checkpoint")
    parser.add_argument(
        "value",
        type=number,
        metavar="VALUE",
        help="a value in the range of the metric, or nan so that the checkpoint is never the best",
    )
    parser.set_defaults(run=_metric)


def _add_run_and_which(parser: argparse.ArgumentParser, where: str = "a run directory") -> None:
    parser.add_argument("dir", type=local_path, metavar="RUN", help=where)
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
    console = open_console(sys.stdout)
    path = options.path
    if path.is_file() and os.path.lexists(seal_beside(path)):
        result = verify_file(path)
        _print_verified(console, result)
        return _code([result])
    if is_foreign(path):
        if options.against is not None:
            raise CheckpointError(f"--against compares sealed checkpoints; `parity compare {path} ...` takes any")
        return verify_foreign(console, path)
    if path.name == "checkpoints" and RunDirectory(path.parent).exists:
        path = path.parent  # those of the run are meant
    targets = _targets(path)
    if options.against is not None:
        _require_single(path, targets, options.against)
    spec_hash = _spec_hash(_run_of(path))
    results = [verify(path, spec_hash) for path in targets]
    for result in results:
        _print_verified(console, result)
    missing = _missing(path, targets)
    for line in missing:
        console.print(Text.assemble(("missing", "bold red"), f"    {line}"), soft_wrap=True)
    if not results:
        print(f"parity: {path} holds no checkpoint: nothing was verified", file=sys.stderr)
    code = EXIT_CODES["broken"] if missing else _code(results)
    if options.against is not None and code == EXIT_CODES["holds"]:
        return compare_checkpoints(targets[0], options.against, by_seal=False)
    return code


def _require_single(path: Path, targets: list[Path], against: Path) -> None:
    if len(targets) != 1:
        raise CheckpointError(f"--against compares single checkpoints; {path} holds {len(targets)}")
    if not against.is_dir() or RunDirectory(against).exists:
        what = "a run; name one of its checkpoints" if against.is_dir() else "not a directory; give a checkpoint"
        raise CheckpointError(f"--against {against} is {what}")


def _targets(path: Path) -> list[Path]:
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a directory; give a checkpoint or a run directory")
    if not (path / "spec.toml").exists():
        if (path / "checkpoints").is_dir() or (path / "steps.jsonl").exists():
            raise RunDirectoryError(RunDirectory(path).no_run())
        if not any(path.iterdir()) and path.resolve().parent.name != "checkpoints":
            return []
        return [path]
    scan = RunDirectory(path).store.scan()
    names = [str(s.step) for s in (*scan.whole, *scan.unsealed)] + [name for name, _ in scan.damaged]
    return [path / "checkpoints" / name for name in sorted(names, key=int)]


def _run_of(path: Path) -> RunDirectory:
    """Return the run that a path belongs to; the path is a run directory, or a checkpoint in one."""
    parent = path.resolve().parent
    return RunDirectory(parent.parent if parent.name == "checkpoints" else path)


def _spec_hash(run: RunDirectory) -> str | None:
    """Return the hash that the checkpoints of a run must have; None, after a warning, if it cannot be computed."""
    if not run.exists:
        return None
    try:
        spec = from_toml(run.identity_text())
        return run.spec_hash() or spec_hash(spec, describe_data(spec)["digest"])
    except (ParityError, ImportError) as error:
        print(f"parity: warning: checkpoints are not compared with their run: {error}", file=sys.stderr)
        return None


def _missing(path: Path, targets: list[Path]) -> list[str]:
    """Return a line for each checkpoint that a pointer of a run names and that does not exist."""
    run, there = RunDirectory(path), {target.name for target in targets}
    steps = {name: run.store.pointed_step(name) for name in ("latest", "best") if run.exists}
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
        console.print(Text.assemble(("whole", "green"), f"      {result.path}: {what}"), soft_wrap=True)
        return
    word = ("unverified", "yellow") if result.unsealed else ("damaged", "bold red")
    console.print(Text.assemble(word, " " * (11 - len(word[0])), str(result.path)), soft_wrap=True)
    for name, problem in describe(result.faults, most=None):
        console.print(Text(f"  {name}: {problem}"), soft_wrap=True)


def _code(results: list[Verified]) -> int:
    if not results:
        return EXIT_CODES["empty"]
    if any(not r.whole and not r.unsealed for r in results):
        return EXIT_CODES["broken"]
    return EXIT_CODES["inconclusive"] if any(r.unsealed for r in results) else EXIT_CODES["holds"]


def _path(options: argparse.Namespace) -> int:
    if is_other_tools(options.dir):
        return print_foreign_path(options.dir, options.which)
    print(_chosen(options))
    return 0


def _export(options: argparse.Namespace) -> int:
    """Copy a checkpoint, or its parameters alone, to a new place; verified before and after the copy."""
    dest = options.dest
    if os.path.lexists(dest):
        raise RunDirectoryError(f"{dest} exists already and is not overwritten; give a new directory")
    source = _chosen(options, verified=True)
    if options.only:
        return _export_params(options, source)
    try:
        with _draft_of(dest) as draft:
            shutil.copytree(source, draft)
            seal = require_verified(draft)
    except shutil.Error as error:  # a list of all failures, most of them for the same reason
        file, copy, reason = error.args[0][0]
        raise OSError(f"{file} could not be copied to {copy}: {reason.partition(': ')[0]}") from error
    print(f"{dest}: step {seal.step} of {options.dir}, verified")
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
    print(f"{dest}: parameters of step {seal.step} of {options.dir}, verified")
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


def _chosen(options: argparse.Namespace, *, verified: bool = False) -> Path:
    """Return the checkpoint that the options name; if `verified`, after comparing it with its seal byte by byte."""
    run, plan = run_and_plan(options.dir)
    scan = run.store.scan()
    while True:
        step = run.store.choose(scan, options.which, plan, or_next=options.or_next)
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


def _metric(options: argparse.Namespace) -> int:
    run, plan = run_and_plan(options.dir)
    metric, value = plan.metric, options.value
    low, high = RANGES[metric]
    if not (math.isnan(value) or (math.isfinite(value) and low <= value <= high)):
        most = f"from {low:g} to {high:g}" if math.isfinite(high) else f"finite and at least {low:g}"
        raise CheckpointError(
            f"VALUE {value:g}: {metric} must be {most}, or nan so that the checkpoint is never the best"
        )
    run.store.note_metric(options.step, value, plan)
    print(f"step {options.step}: {metric} {value:g}")
    return 0
