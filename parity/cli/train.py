"""`parity train`: train a run, or continue it."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import replace
from functools import partial
from typing import Any

from parity import sides
from parity.cli.options import add_spec_options, count, deadline, directory_or_url, positive, word_or_step
from parity.cli.progress import Progress
from parity.contract import StepRecord, devices_started, prepare_process, processes_of
from parity.environment import code_digest
from parity.errors import SpecError
from parity.forks import end_with_parent
from parity.report import print_split
from parity.results import EXIT_CODES
from parity.runs import DEADLINE_SECONDS, FaultInjection, Observers, ProcessOptions, RemoteCopy, join, train
from parity.spec import MESH_AXES, PRESETS, RunSpec, fit_mesh, identity_of, load
from parity.storage.stores import StoreUrl, cache_of
from parity.trackers import TRACKERS, Trackers
from parity.trackers import load as load_trackers
from parity.twins import batches_per_epoch, describe_data

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity train`."""
    parser.add_argument(
        "--side",
        required=True,
        metavar="SIDE",
        help=f"{', '.join(sides.SIDES)}, or the name of an entry point of the group {sides.GROUP}",
    )
    parser.add_argument("--spec", required=True, metavar="PRESET|FILE", help=f"{', '.join(PRESETS)}, or a TOML file")
    parser.add_argument(
        "--dir",
        required=True,
        type=directory_or_url,
        metavar="RUN",
        help="run directory, created or continued; a URL of a store is save.remote, with a directory in the cache",
    )
    add_spec_options(parser, epochs=True)
    parser.add_argument(
        "--resume",
        type=word_or_step("auto", "latest", "best", "never"),
        default="auto",
        metavar="auto|latest|best|STEP|never",
        help="the checkpoint to resume from; auto (default): the latest, or a new run; never: start over on purpose",
    )
    parser.add_argument(
        "--or-next", action="store_true", help="with --resume best: take the next best where the best is damaged"
    )
    parser.add_argument(
        "--on-error",
        choices=("stop", "continue"),
        default="stop",
        help="when a checkpoint cannot be written: stop (default), or report it, continue, and exit with 3",
    )
    parser.add_argument(
        "--deadline",
        type=deadline,
        default=DEADLINE_SECONDS,
        metavar="SECONDS",
        help=f"longest a stop by SIGTERM, SIGINT or SIGHUP may take to save (default {DEADLINE_SECONDS:g})",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        choices=TRACKERS,
        help="log to RUN/tensorboard or RUN/wandb too; repeatable (extras of the same names)",
    )
    parser.add_argument(
        "--fit-mesh",
        choices=MESH_AXES,
        metavar="AXIS",
        help=f"give this axis of the mesh ({', '.join(MESH_AXES)}) as many devices as were started, so that a run "
        "goes on when torchrun --nnodes MIN:MAX starts fewer or more",
    )
    parser.add_argument(
        "--explain-sharding",
        action="store_true",
        help="print along which axes of the mesh each leaf is split, and its bytes per device; nothing is trained",
    )
    parser.add_argument("--json", action="store_true", help="with --explain-sharding: print it as JSON")
    parser.add_argument(
        "--remote-unsafe",
        action="store_true",
        help="copy to a store (save.remote) that does not keep what `parity remote probe` asks for",
    )
    parser.add_argument("--trace-state", action="store_true", help="write leaf digests to RUN/states.jsonl")
    parser.add_argument(
        *("--pause-at", "--hold-at"),
        type=count,
        metavar="STEP",
        help="fault injection: after this step, wait to be killed; 0: before the first step of this process",
    )
    parser.add_argument("--with-parent", type=positive, metavar="PID", help=argparse.SUPPRESS)  # of `parity check`
    parser.set_defaults(run=_run, lost_streams="mute")


def _run(options: argparse.Namespace) -> int:
    if options.with_parent:
        end_with_parent(options.with_parent)
    trackers = load_trackers(options.log)  # first: a missing package is reported before anything is trained
    side = sides.load(options.side)
    prepare_process(side)
    epochs = [f'steps="{options.epochs} epochs"'] if options.epochs else []
    spec = load(options.spec, options.precision, [*options.set, *epochs], batches_per_epoch)
    if options.steps:
        spec = replace(spec, steps=options.steps)
    if options.fit_mesh:
        spec = _fitted(side, options, spec)
    if options.json and not options.explain_sharding:
        raise SpecError("--json", "is of --explain-sharding; records of a run are in RUN/steps.jsonl")
    if options.explain_sharding:
        return _explain(side, options, spec)
    if isinstance(options.dir, StoreUrl):
        spec = replace(spec, save=replace(spec.save, remote=str(options.dir)))
        options.dir = cache_of(options.dir)
        print(f"parity: the run directory is {options.dir}", file=sys.stderr)
    identity = identity_of(spec)
    with (
        join(processes_of(side), partial(_facts, options, spec, side), identity, spec, options.deadline) as together,
        Progress(spec.steps, shown=together.first) as progress,
        Trackers(trackers if together.first else {}, options.dir, identity, progress.say) as tracked,
    ):
        asked = ProcessOptions(
            resume=options.resume,
            or_next=options.or_next,
            on_error=options.on_error,
            deadline=options.deadline,
            remote=RemoteCopy(
                url=spec.save.remote, mode=spec.plan.mode, identity=identity, unsafe=options.remote_unsafe
            ),
            faults=FaultInjection(trace=options.trace_state, pause_at=options.pause_at),
        )
        observers = _observers(progress, tracked if trackers else None)
        outcome = train(side, options.side, spec, options.dir, asked, observers, together)
    for failure in outcome.failures:
        print(f"parity: error: {failure}", file=sys.stderr)
    if outcome.failures:
        return EXIT_CODES["crashed"]
    return 0 if outcome.signal is None else 128 + outcome.signal


def _fitted(side: Any, options: argparse.Namespace, spec: RunSpec) -> RunSpec:
    """Return the run on a mesh of as many devices as were started."""
    devices = devices_started(side)
    if devices is None:
        problem = f"the side {options.side!r} does not say how many devices it is started with; use --set mesh"
        raise SpecError("--fit-mesh", f"{problem}.{options.fit_mesh}=N")
    return replace(spec, mesh=fit_mesh(spec.mesh, options.fit_mesh, devices))


def _explain(side: Any, options: argparse.Namespace, spec: RunSpec) -> int:
    """Print where each leaf lies; the run directory is neither read nor written."""
    if not hasattr(side, "explain_sharding"):
        raise SpecError("--explain-sharding", f"the side {options.side!r} has no shardings to explain")
    found = side.explain_sharding(spec)
    if options.json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        print_split(found, sys.stdout)
    return 0


def _facts(options: argparse.Namespace, spec: RunSpec, side: Any) -> dict[str, str]:
    """Return what all processes of a run must be started with, beside the spec: words, code, the data they see."""
    names = ("side", "resume", "or_next", "on_error", "trace_state", "pause_at")
    given = {f"--{name.replace('_', '-')}": str(getattr(options, name)) for name in names}
    code = code_digest("parity", getattr(side, "__name__", "").partition(".")[0])
    given |= {"code of parity": code, "Python": platform.python_version(), "data": describe_data(spec)["digest"]}
    return {**given, "--dir": str(options.dir.resolve())}


def _observers(progress: Progress, tracked: Trackers | None) -> Observers:
    """Return what the loop calls; without a tracker, it calls the progress bar directly."""
    if tracked is None:
        return Observers(log=progress.say, on_step=progress.watch)

    def on_step(record: StepRecord) -> None:
        progress.watch(record)
        tracked.on_record(record)

    return Observers(log=progress.say, on_step=on_step, on_validation=tracked.on_record)
