"""`parity check`: prove that runs resume, agree across sides, and can be handed over."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from parity import sides
from parity.checks import MEANINGS, QUICK, remove_scratch, scenario_names, scratch_directory
from parity.cli.check_progress import CheckProgress
from parity.cli.interrupt import Interruption
from parity.cli.options import add_spec_options, directory, positive
from parity.cli.streams import StreamLost
from parity.cli.train_forks import TrainForks
from parity.contract import shared_programs
from parity.environment import describe_environment, usable_cpus
from parity.errors import SpecError
from parity.forks import Janitor
from parity.reference import (
    ASKED,
    CHECKS,
    DEFAULT_STEPS,
    SPEC_CHECKS,
    SuiteRequest,
    list_tasks,
    parse_placement,
    run_checks,
    standard_matrix,
    unfinished,
)
from parity.reference.planned import end_all
from parity.report import annotate, append_summary, check_markdown, print_table, quoted
from parity.report.html import check_page
from parity.results import EXIT_CODES, CheckRecord, document, encode, overall
from parity.spec import PRESETS, RunSpec, load, override
from parity.storage import reason, replace_file, require_writable
from parity.twins import activations, batches_per_epoch, describe_data, host_needs, physical_memory

__all__ = ["add"]

MOST_AHEAD = 4
"""Resume checks that run ahead at a time, at most."""

PROCESS_BYTES = 1 << 30
"""What a process with a framework takes before it holds anything of a run."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity check`."""
    parser.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help=f"{', '.join(CHECKS)}; default: all, policy only without --spec; "
        f"{', '.join(ASKED)}: only where it is named",
    )
    parser.add_argument(
        "--spec",
        action="append",
        metavar="PRESET|FILE",
        help=f"{', '.join(PRESETS)}, or a TOML file; repeatable; default: the standard matrix",
    )
    parser.add_argument(
        "--sides",
        metavar="SIDE,SIDE",
        help=f"default: those of {','.join(sides.SIDES)} whose framework is installed; others are entry points of "
        f"the group {sides.GROUP}",
    )
    add_spec_options(parser)
    parser.add_argument(
        "--preset",
        choices=("five-epochs",),
        help="the classic experiment: five epochs, a kill or a handover, five more; saves and validates each epoch "
        "(default spec: mlp-digits in float64)",
    )
    parser.add_argument(
        "--kill-at",
        type=positive,
        action="append",
        default=[],
        metavar="STEP",
        help="step at which the resume check kills the run; repeatable; default: at the end of an epoch, and "
        "a step after the end of another (where none ends: a chunk after two of the saves)",
    )
    parser.add_argument(
        "--scenarios",
        metavar="quick|all|NAME,NAME",
        help=f"stop and resume the run of the resume check in these ways, each against the uninterrupted run: "
        f"{', '.join(MEANINGS)}; quick: {', '.join(QUICK)}",
    )
    parser.add_argument(
        "--roads", dest="scenarios", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )  # its former name
    parser.add_argument(
        "--placement",
        action="append",
        default=[],
        metavar="MESH",
        help="a placement of the topology check, as data=2,fsdp=2,model=2,processes=4 without fields that are 1; "
        "repeatable, at least two; "
        "default: one device, each kind of mesh and several processes, as far as they fit the spec",
    )
    parser.add_argument(
        "--every-pair",
        action="store_true",
        help="have the topology check go from each placement to each other one, not once around",
    )
    parser.add_argument(
        "--report", type=directory, metavar="DIR", help="write check.json, check.md, index.html, specs, runs"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON document on stdout, all else on stderr")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with Interruption() as interruption:
        specs = _specs(options)
        steps = options.steps or DEFAULT_STEPS
        if options.preset and (options.steps or options.kill_at):
            raise SpecError("--preset", "five-epochs sets the steps and the kill; leave out --steps and --kill-at")
        if options.scenarios and (options.preset or options.kill_at):
            raise SpecError("--scenarios", "sets where runs are killed; leave out --kill-at and --preset")
        if options.scenarios and options.checks and "resume" not in options.checks:
            raise SpecError("--scenarios", f"are those of the resume check; {', '.join(options.checks)} has none")
        if (options.placement or options.every_pair) and "topology" not in options.checks:
            raise SpecError(
                "--placement" if options.placement else "--every-pair", "is of the topology check; name it"
            )
        placements = [parse_placement(text) for text in options.placement]
        chosen = {name: sides.load(name) for name in _sides(options)}
        for step in options.kill_at:
            if step >= steps:
                raise SpecError("--kill-at", f"{step} is not before the end at {steps} steps")
        devices = {name: side.topology(specs[0]) for name, side in chosen.items()}
        if options.report is not None:
            require_writable(options.report)
        environment = describe_environment() | {
            "command": options.command,
            "devices": devices,
            "data": {spec.name: describe_data(spec) for spec in specs},
        }
        with scratch_directory("parity-") as scratch, ExitStack() as stack:
            stack.enter_context(Janitor(folder=str(scratch)))
            for name, side in chosen.items():
                stack.enter_context(shared_programs(side, scratch / f"programs-{name}"))
            checks = options.checks or _default_checks(options, len(chosen))
            forks = stack.enter_context(TrainForks(chosen if {"resume", "topology"} & {*checks} else {}))
            request = SuiteRequest(
                checks=checks,
                specs=specs,
                sides=chosen,
                steps=steps,
                kills=options.kill_at,
                scenarios=scenario_names(options.scenarios) if options.scenarios else (),
                epochs=options.preset is not None,
                placements=placements,
                every_pair=options.every_pair,
                workdir=(options.report or scratch) / "runs",
                ahead=_room(devices, specs),
                begin=forks.begin,
            )
            records = _check(request, options, environment, interruption)
        interruption.begin_to_write()
        _write(options.report, records, environment)
        _print(options, records, environment)
        return EXIT_CODES[overall(records)]


def _sides(options: argparse.Namespace) -> list[str]:
    """Return the names of the sides: those asked for, else the built-in ones that are installed, said if not all."""
    if options.sides is not None:
        return [name.strip() for name in options.sides.split(",")]
    here = [name for name in sides.SIDES if name in sides.installed()]
    missing = [name for name in sides.SIDES if name not in here]
    if here and missing:
        print(
            f"parity: {', '.join(missing)} is not installed: {', '.join(here)} alone is checked, "
            "without what needs both sides",
            file=sys.stderr,
        )
    return here or list(sides.SIDES)


def _default_checks(options: argparse.Namespace, count: int) -> Sequence[str]:
    """Return the checks where none are named: with one framework installed, those that need no other side."""
    every = SPEC_CHECKS if options.spec or options.preset else CHECKS
    alone = options.sides is None and count < 2
    return [name for name in every if not (alone and name in ("twins", "handover"))]


def _room(devices: Mapping[str, Mapping[str, Any]], specs: Sequence[RunSpec]) -> int:
    """Return how many resume checks may run ahead: none beside an accelerator, whose memory one process may fill.

    As many as there are processors, more than can be busy at a time (processes wait for disks and kills), and as half
    of the memory has room for, at two processes each.
    """
    if any(str(device.get("platform", "")).lower() != "cpu" for device in devices.values()):
        return 0
    cpus, memory = usable_cpus(), physical_memory()
    if cpus < 2 or memory is None:
        return 0
    return min(cpus, MOST_AHEAD, memory // 2 // max(2 * _process_bytes(spec) for spec in specs))


def _process_bytes(spec: RunSpec) -> int:
    """Return what a training process of a spec may take, in bytes: a generous guess, from lower bounds."""
    held = sum(need.size for need in host_needs(spec))
    return PROCESS_BYTES + 4 * held + 16 * max(need.size for need in activations(spec))


def _check(
    request: SuiteRequest, options: argparse.Namespace, environment: dict[str, Any], interruption: Interruption
) -> list[CheckRecord]:
    """Run the checks, and add their `seconds` to the environment.

    After a signal, or a lost stream, the records so far are written all the same.
    """
    began = time.perf_counter()
    finished: list[CheckRecord] = []
    progress = CheckProgress(list_tasks(request))

    def done(record: CheckRecord) -> None:
        finished.append(record)
        progress.end(f"{record.name} {record.spec} {record.precision} ({', '.join(record.sides)}): {record.verdict}")

    def note_time() -> None:
        environment["seconds"] = round(time.perf_counter() - began, 1)

    def left_by(what: str) -> list[CheckRecord]:
        note_time()
        return [*finished, *unfinished(request, len(finished), f"stopped by {what} before it finished")]

    def finish(name: str) -> None:
        progress.close()
        end_all()
        records = left_by(name)
        try:
            _write(options.report, records, environment)
        except OSError as error:
            print(f"parity: error: {reason(error, 'write')}", file=sys.stderr)
        remove_scratch()
        _print(options, records, environment)

    interruption.finish = finish
    try:
        with progress:
            records = run_checks(request, done, progress.begin, progress.step)
    except StreamLost as lost:
        end_all()
        interruption.begin_to_write()
        _write(options.report, left_by(f"a lost stream ({lost})"), environment)
        raise
    note_time()
    return records


def _write(report: Path | None, records: Sequence[CheckRecord], environment: Mapping[str, Any]) -> None:
    """Write the files of a report, where one was asked for."""
    if report is None:
        return
    report.mkdir(parents=True, exist_ok=True)
    replace_file(report / "check.json", encode(document(records, environment)) + "\n")
    replace_file(report / "check.md", check_markdown(records, environment))
    replace_file(report / "index.html", check_page(records, environment))


def _print(options: argparse.Namespace, records: Sequence[CheckRecord], environment: Mapping[str, Any]) -> None:
    """Print the table and, on request, the document; annotate in GitHub Actions."""
    out = sys.stderr if options.json else sys.stdout
    with quoted(out):
        print_table(records, out, environment)
    annotate(records, out)
    append_summary(check_markdown(records, environment))
    if options.json:
        print(encode(document(records, environment)))


def _specs(options: argparse.Namespace) -> list[RunSpec]:
    if options.preset and not options.spec:
        return [load("mlp-digits", options.precision or "float64", options.set, batches_per_epoch)]
    if options.spec or options.precision:
        names = options.spec or list(PRESETS)
        return [load(name, options.precision, options.set, batches_per_epoch) for name in names]
    return [override(spec, options.set) for spec in standard_matrix()]
