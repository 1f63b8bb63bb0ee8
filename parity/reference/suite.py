"""The suite: which checks run on which specs, in which order, and one record for each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from parity.checks import OnStep, ignore_step
from parity.errors import NoCounterpartError, ParityError, UnknownNameError
from parity.reference.across import TwinPair, check_handover, check_twins
from parity.reference.ahead import Ahead
from parity.reference.drill import check_twin_policy, check_twin_resume, check_twin_scenarios, drill_spec, epochs_spec
from parity.reference.placements import NamedMesh, fitting_placements, pairs_of
from parity.reference.planned import StartProcess, start_interpreter
from parity.reference.policy import PURE, check_policy
from parity.reference.topology import Topologies, check_topology, part_in_processes
from parity.results import CheckRecord, Criterion, ResolvedSpec, Verdict
from parity.sides import Side
from parity.spec import RunSpec, preset, spec_hash, to_toml
from parity.twins import describe_data

__all__ = [
    "ASKED",
    "CHECKS",
    "DEFAULT_STEPS",
    "SPEC_CHECKS",
    "SuiteRequest",
    "Task",
    "list_tasks",
    "run_checks",
    "standard_matrix",
    "unfinished",
    "with_overflows",
]

SPEC_CHECKS = ("resume", "twins", "handover")
"""Checks of a spec; they run once for each."""
CHECKS = (*SPEC_CHECKS, "policy")
ASKED = ("topology",)
"""Checks of a spec that run only where they are named: they need as many devices as their placements."""
DEFAULT_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class SuiteRequest:
    """A request: the checks, and what they run on.

    Raises:
        UnknownNameError: There is no such check.
    """

    checks: Sequence[str] = CHECKS
    specs: Sequence[RunSpec]
    sides: Mapping[str, Side]
    """By name; resume and policy are checked on each, twins and handover between the first two."""
    steps: int = DEFAULT_STEPS
    kills: Sequence[int] = ()
    scenarios: Sequence[str] = ()
    """Names of the scenarios of the resume check; none for two kills."""
    epochs: bool = False
    """Whether each spec is the classic experiment instead, five epochs before the kill or handover and five after it:
    `steps` and `kills` have no effect, and the resume check brings the handovers in both directions with it."""
    workdir: Path
    """Run directories go to `<workdir>/<spec>-<precision>/<side>/`; those of an earlier check are replaced."""
    placements: Sequence[NamedMesh] = ()
    """Those of the topology check; none for `fitting_placements`."""
    every_pair: bool = False
    """Whether the topology check goes from each placement to each other one, not once around."""
    ahead: int = 0
    """How many resume checks may run ahead of their turn, beside the others: their runs are processes of their own.
    Results do not depend on it. Leave it at 0 where the sides share an accelerator: its memory is not for so many."""
    begin: StartProcess = start_interpreter
    """Starts each process of the resume checks."""

    def __post_init__(self) -> None:
        for name in self.checks:
            if name not in (*CHECKS, *ASKED):
                raise UnknownNameError("check", name, (*CHECKS, *ASKED))


def standard_matrix() -> list[RunSpec]:
    """Return the specs of a bare `parity check`: every preset in float64, and one of them in float16."""
    return [preset(name, "float64") for name in ("mlp-digits", "cnn-digits", "gpt-text")] + [
        preset("mlp-digits", "float16")
    ]


Once = TypeVar("Once")

Resolve = Callable[[], tuple[ResolvedSpec, str]]
"""Writes the resolved spec into the directory of its runs, and returns it with the digest of its data."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One check that was asked for; it gives one record."""

    name: str
    spec: RunSpec
    sides: tuple[str, ...]
    run: Callable[[], CheckRecord]
    resolve: Resolve | None = None
    """None for a check that is of no spec."""
    apart: bool = False
    """Whether it trains in processes of its own alone, so that it may run beside others."""


def list_tasks(request: SuiteRequest, on_step: OnStep = ignore_step) -> list[Task]:
    """Return what was asked for, in the order in which it runs; nothing is read, built or written yet.

    Args:
        request: What to check.
        on_step: Called as a check proceeds.

    Raises:
        SpecError: Fewer than 10 steps are asked for, with a check of a spec.
    """
    tasks = []
    if "policy" in request.checks:
        make = partial(Task, name="policy", spec=preset("mlp-digits"))
        tasks.append(make(sides=(PURE,), run=check_policy))
        for name, side in request.sides.items():
            tasks.append(make(sides=(name,), run=partial(check_twin_policy, name, side, on_step)))
    if {*SPEC_CHECKS, *ASKED} & set(request.checks):
        for asked in request.specs:
            if request.epochs:
                spec, kill = epochs_spec(asked)
                tasks += _tasks_of(with_overflows(spec), replace(request, kills=(kill,)), on_step)
            else:
                tasks += _tasks_of(with_overflows(drill_spec(asked, request.steps)), request, on_step)
    return tasks


def run_checks(
    request: SuiteRequest,
    done: Callable[[CheckRecord], None],
    begin: Callable[[int], None] = lambda number: None,
    on_step: OnStep = ignore_step,
) -> list[CheckRecord]:
    """Run what was asked for, and return a record for each check, in the order of `list_tasks`.

    A check that raises an error has the verdict `crashed`, or `inconclusive` where a state has no counterpart on the
    other side; the others run all the same.

    Args:
        request: What to check.
        done: Takes each record, in their order, when its check has its verdict.
        begin: Takes the place of each check in `list_tasks` when its turn comes, from 0.
        on_step: Called as the check whose turn it is proceeds.

    Raises:
        SpecError: As of `list_tasks`.
    """
    records: list[CheckRecord] = []
    with Ahead(request.ahead, on_step) as ahead:
        waiting = list_tasks(request, ahead.on_step)
        for number, task in enumerate(waiting):
            if task.apart:
                ahead.submit(number, partial(_guarded, task))
        waiting.reverse()
        while waiting:
            number = len(records)
            begin(number)
            task = waiting.pop()  # off the list: the trainers of a spec are released after its last check
            resolved = task.resolve() if task.resolve is not None else None
            record = ahead.take(number, partial(_guarded, task))
            if resolved is not None:
                spec, digest = resolved
                record = replace(record, resolved=spec, digests={"data": digest, **record.digests})
            done(record)
            records.append(record)
    return records


def unfinished(request: SuiteRequest, finished: int, why: str) -> list[CheckRecord]:
    """Return an inconclusive record for every check that was asked for, but for the first ones, which finished.

    Args:
        request: What was to be checked.
        finished: How many checks have their record.
        why: What stopped the others, in a sentence for people.
    """
    left = list_tasks(request)[finished:]
    return [_without(task.spec, task.name, task.sides, "inconclusive", why) for task in left]


def with_overflows(spec: RunSpec) -> RunSpec:
    """Return a float16 spec with overflows forced at named steps, unless it names its own.

    One falls on a save, so that a checkpoint is taken right after a skipped step.
    """
    if not spec.scaled or spec.scaler.overflow_steps:
        return spec
    every = spec.save.every
    steps = tuple(sorted({max(1, every // 3), 2 * every - 1, 2 * every}))
    return replace(spec, scaler=replace(spec.scaler, overflow_steps=steps))


def _tasks_of(spec: RunSpec, request: SuiteRequest, on_step: OnStep) -> Iterator[Task]:
    checks, home = request.checks, request.workdir / f"{spec.name}-{spec.precision}"
    make = partial(Task, spec=spec, resolve=cache(partial(_resolve, spec, home)))
    for name, side in request.sides.items() if "resume" in checks else ():
        run = partial(_resume_anew, spec, name, side, home / name, request, on_step)
        yield make(name="resume", sides=(name,), run=run, apart=True)
    for name, side in request.sides.items() if "topology" in checks else ():
        yield from _topologies(spec, name, side, home / f"{name} topology", request, on_step)
    names = tuple(request.sides)[:2]
    if len(names) < 2:
        for name in (name for name in ("twins", "handover") if name in checks):
            run = partial(_without, spec, name, names, "inconclusive", "needs two sides, one was given")
            yield make(name=name, sides=names, run=run)
        return
    a, b = names
    pair = _once(partial(TwinPair, spec, {name: request.sides[name] for name in names}, on_step=on_step))
    if "twins" in checks:
        yield make(name="twins", sides=names, run=lambda: check_twins(pair()))
    once, twice = ((a, b), (b, a)), ((a, b, a), (b, a, b))
    handovers = once if request.epochs else once + twice
    for path in handovers if "handover" in checks or request.epochs else ():
        run = partial(lambda path: check_handover(pair(), path), path)
        yield make(name=f"handover {'-'.join(path)}", sides=path, run=run)


def _topologies(
    spec: RunSpec, name: str, side: Side, home: Path, request: SuiteRequest, on_step: OnStep
) -> Iterator[Task]:
    """Yield a task for each pair of placements; all share what was trained before."""
    make = partial(Task, spec=spec, sides=(name,), resolve=cache(partial(_resolve, spec, home.parent)))
    part = part_in_processes(name, side, request.begin)
    runs = _once(partial(Topologies, spec, name, side, home, part, on_step))
    for a, b in pairs_of(request.placements or fitting_placements(spec), every=request.every_pair):
        run = partial(lambda a, b: check_topology(runs(), a, b), a, b)
        yield make(name=f"topology {a.name} > {b.name}", run=run)


def _resolve(spec: RunSpec, home: Path) -> tuple[ResolvedSpec, str]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "spec.toml").write_text(to_toml(spec), encoding="utf-8")
    digest = describe_data(spec)["digest"]
    return ResolvedSpec(toml=to_toml(spec), hash=spec_hash(spec, digest)), digest


def _resume_anew(
    spec: RunSpec, name: str, side: Side, home: Path, request: SuiteRequest, on_step: OnStep
) -> CheckRecord:
    shutil.rmtree(home, ignore_errors=True)  # runs of an earlier check would be continued
    if request.scenarios:
        return check_twin_scenarios(spec, name, side, home, request.scenarios, on_step, request.begin)
    return check_twin_resume(spec, name, side, home, request.kills, on_step, request.begin)


def _once(make: Callable[[], Once]) -> Callable[[], Once]:
    """Return a function that makes something when it is first called, and fails each time if it failed then."""
    made: list[Once | Exception] = []

    def get() -> Once:
        if not made:
            try:
                made.append(make())
            except Exception as error:
                made.append(error)
        if isinstance(made[0], Exception):
            raise made[0]
        return made[0]

    return get


def _guarded(task: Task) -> CheckRecord:
    """Run a check; an error of ours or of a framework becomes a crashed record, never a lost one."""
    began = time.perf_counter()
    try:
        return task.run()
    except NoCounterpartError as error:
        return _without(task.spec, task.name, task.sides, "inconclusive", str(error), began)
    except Exception as error:  # one check that fails must not cost the records of the others
        return _without(task.spec, task.name, task.sides, "crashed", _describe(error), began)


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ParityError) else f"{type(error).__name__}: {error}"


def _without(
    spec: RunSpec,
    name: str,
    names: tuple[str, ...],
    verdict: Verdict,
    note: str,
    began: float | None = None,
) -> CheckRecord:
    """Return the record of a check that compared nothing."""
    across: Criterion = "float64" if spec.precision == "float64" else "envelope"
    criterion: Criterion = "bitwise" if name in ("resume", "policy") else across
    return CheckRecord.of(
        name, spec.name, spec.precision, names, verdict, began=began, criterion=criterion, notes=(note,)
    )
