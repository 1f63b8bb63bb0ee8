"""`parity export`: a checkpoint copied out of its run, its parameters alone, or a run handed over to another side."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from parity import sides, storage
from parity.checkpoints import read_seal, require_verified, while_it_stays
from parity.cli.homes import home_of
from parity.cli.options import add_run_and_which, local_path, on_disk
from parity.contract import prepare_process
from parity.errors import CheckpointError, RunDirectoryError
from parity.runs import NamedSide, RunDirectory, cross_over
from parity.spec import MeshSpec, from_toml

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity export`."""
    add_run_and_which(parser)
    parser.add_argument("dest", type=local_path, metavar="DEST", help="new directory; see --only params")
    parser.add_argument(
        "--only",
        choices=("params",),
        help="export only the parameters and buffers of the model, for inference. PyTorch: a state dict in the file "
        "DEST, or safetensors if its name ends so; JAX: Orbax items in the directory DEST",
    )
    parser.add_argument(
        "--to",
        choices=tuple(sides.SIDES),
        help="hand the run over to the other side for good: DEST is a run directory that it continues",
    )
    parser.set_defaults(run=_export)


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
    if options.to and (options.only or home.run is None):
        why = "--only params leaves out what a run needs" if options.only else "a manager's checkpoints are no run"
        raise CheckpointError(f"--to {options.to}: {why}; it hands a whole run over")
    source = home.chosen(options.which, or_next=options.or_next)
    if options.to:
        return _export_to(options, source)
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


def _export_to(options: argparse.Namespace, source: Path) -> int:
    """Have the other side write the run that it continues to a draft, and give that its name."""
    seal, dest, run = read_seal(source), options.dest, RunDirectory(options.dir)
    if seal.side == options.to:
        raise CheckpointError(
            f"--to {options.to}: the run is of that side; `parity train --dir {options.given} --resume {seal.step}` "
            "continues it"
        )
    both = [NamedSide(name, sides.load(name)) for name in (seal.side, options.to)]
    for one in both:
        prepare_process(one.side)
    spec = replace(from_toml(run.identity_text()), mesh=MeshSpec())
    with _draft_of(dest) as draft:
        crossed = cross_over(run, seal.step, spec, (both[0], both[1]), draft)
    how = f"{crossed} leaves from {seal.side} to {options.to}, bit for bit"
    print(f"{dest}: step {seal.step} of {options.given}, {how}")
    print(f"continue: parity train --side {options.to} --spec {dest / 'spec.toml'} --dir {dest}")
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
