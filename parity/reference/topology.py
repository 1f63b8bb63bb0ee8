"""The topology check: a run that is saved on one placement and resumed on another, against one that never moved.

Each part of a run is trained by itself, in as many processes as its placement has; what is judged is what they leave
on disk. The state after the restore must be the saved one bit for bit, leaf by leaf in neutral form; the curve must
be that of one device, by the criterion of the twins: sums over other shards are rounded in another order.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from parity.checks import OnStep, ignore_step, losses
from parity.contract import Side, Trainer, child_environment, processes_needed
from parity.reference.across import Envelope, StepCurve, agree, measure_envelope, noise_floor, run_from
from parity.reference.drill import train_command
from parity.reference.placements import NamedMesh
from parity.reference.planned import RunEvidence, StartProcess, TrainingProcess, read_evidence, start_interpreter
from parity.reference.suspects import name_lost
from parity.results import CheckRecord
from parity.runs import FaultInjection, ProcessOptions, train, variables
from parity.sides import is_builtin
from parity.spec import MeshSpec, RunSpec
from parity.state import TrainingState, compare_digests

__all__ = ["Topologies", "TrainPart", "check_topology", "part_here", "part_in_processes"]

TrainPart = Callable[[RunSpec, Path], None]
"""Trains a run in a run directory to its last step, from where it stands there, and leaves evidence."""

PART_SECONDS = 600.0
"""Longest one part of a run may take in its processes; it is then killed, and the check has crashed."""

NAMES_PLACEMENT = "config.spec"
"""The leaf that a change of placement changes: the text of the spec, its mesh with it."""


class Topologies:
    """The runs of one spec on one side, over which pairs of placements are checked; each is trained once.

    Args:
        spec: The run, with its steps; it is saved in the middle.
        side_name: Name of the side.
        side: The side.
        workdir: Where the run directories go; those of an earlier check are replaced.
        part: Trains its parts.
        on_step: Called for the steps of the reference.
    """

    def __init__(
        self,
        spec: RunSpec,
        side_name: str,
        side: Side,
        workdir: Path,
        part: TrainPart,
        on_step: OnStep = ignore_step,
    ) -> None:
        self.middle = max(1, spec.steps // 2)
        self.spec = replace(spec, save=replace(spec.save, every=self.middle), mesh=MeshSpec())
        self.side_name, self._side, self._home = side_name, side, workdir
        self._part, self._on_step = part, on_step
        self._saved: dict[NamedMesh, Path] = {}
        shutil.rmtree(workdir, ignore_errors=True)
        workdir.mkdir(parents=True)

    @cached_property
    def reference(self) -> StepCurve:
        """Return the curve of one device that nothing stopped."""
        return run_from(self._trainer, self.spec.steps, self._start, self._on_step)

    @cached_property
    def floor(self) -> float:
        """Return the noise floor of the spec in float64."""
        return noise_floor(self._trainer, self._start, losses(self.reference), self.spec.steps)

    @cached_property
    def envelope(self) -> Envelope:
        """Return the measured envelope of one device."""
        topology = json.dumps([self.side_name, self._side.topology(self.spec)])
        return measure_envelope(
            self.spec,
            [self._trainer],
            self._start,
            self.spec.steps,
            key=topology if is_builtin(self._side) else None,
            on_step=self._on_step,
        )

    @cached_property
    def _trainer(self) -> Trainer:
        return self._side.build(self.spec)

    @cached_property
    def _start(self) -> TrainingState:
        return self._trainer.export_state()

    def resumed(self, first: NamedMesh, second: NamedMesh) -> RunEvidence:
        """Return what a run left that was saved on one placement and finished on another.

        Raises:
            ProcessError: As of the part.
        """
        if first not in self._saved:
            self._saved[first] = self._home / f"saved on {first.name}"
            self._train(first, self._saved[first], self.middle)
        run = self._home / f"{first.name} to {second.name}"
        shutil.copytree(self._saved[first], run)
        self._train(second, run, self.spec.steps)
        return read_evidence(run)

    def _train(self, placed: NamedMesh, run: Path, steps: int) -> None:
        self._part(replace(placed.of(self.spec), steps=steps), run)


def part_here(side_name: str, side: Side) -> TrainPart:
    """Return what trains a part of a run within this process: fast, and for placements of one process.

    Args:
        side_name: Name of the side.
        side: The side.
    """

    def part(spec: RunSpec, run: Path) -> None:
        train(side, side_name, spec, run, ProcessOptions(faults=FaultInjection(trace=True)))

    return part


def part_in_processes(side_name: str, side: Side, begin: StartProcess = start_interpreter) -> TrainPart:
    """Return what trains a part of a run by `parity train`, in as many processes as its mesh has.

    Args:
        side_name: Name of the side.
        side: The side.
        begin: Starts each process.

    Returns:
        What raises a ProcessError if a process ends otherwise than it should, or takes too long.
    """

    def part(spec: RunSpec, run: Path) -> None:
        name, count = f"{run.name} until {spec.steps}", max(spec.mesh.processes, processes_needed(side, spec))
        command = train_command(spec, side_name, run.parent / f"{name}.toml")(run, None)
        environment, port = child_environment(side), _free_port()
        with ExitStack() as stack:
            started = []
            for index in range(count):
                own = {**environment, **(variables(index, count, port) if count > 1 else {})}
                process = TrainingProcess(command, run, run.parent / f"{name} {index}.log", own, begin)
                started.append(stack.enter_context(process))
            until = time.monotonic() + PART_SECONDS
            for process in started:
                process.wait(max(0.0, until - time.monotonic()))

    return part


def check_topology(topologies: Topologies, first: NamedMesh, second: NamedMesh) -> CheckRecord:
    """Check one pair of placements.

    Args:
        topologies: The runs.
        first: Where the run is saved.
        second: Where it is resumed.

    Raises:
        ProcessError: A process ended otherwise than it should have, or took too long.

    Numerics: batches, rates, loss scales and skipped steps are equal bit for bit, the restored state too; the loss
    differs from that of one device by rounding only: 1e-12 relative in float64, inside the measured envelope below.
    """
    began = time.perf_counter()
    spec, middle = topologies.spec, topologies.middle
    name, sides = f"topology {first.name} > {second.name}", (topologies.side_name,)
    left = topologies.resumed(first, second)

    broken = partial(CheckRecord.of, name, spec.name, spec.precision, sides, "broken", began=began)
    step_lost = partial(broken, suspects=("counters.step",))

    if left.resumed_from != [None, middle]:
        return step_lost(notes=(f"resumed from {left.resumed_from[1:]}, was saved at step {middle}",))
    saved, restored = left.find("saved", middle, before=1), left.find("restored", middle)
    if saved is None or restored is None or not restored.leaves:
        when = "after" if saved else "before"
        return broken(notes=(f"no state of step {middle} was recorded {when} the restore",))
    lost = [d for d in compare_digests(saved.leaves, restored.leaves) if d.leaf != NAMES_PLACEMENT]
    if lost:
        note = f"{len(lost)} leaves are not what was saved: {lost[0].leaf} {lost[0].detail}"
        return broken(notes=(note,), **name_lost(lost, "after the restore"))
    reference, curve = topologies.reference, left.curve
    if curve.keys() != reference.keys():
        missing = sorted({*reference} ^ {*curve})
        return step_lost(notes=(f"steps {missing[:5]} are not in both runs",))
    result = agree(
        reference, curve, spec.precision, floor=lambda: topologies.floor, envelope=lambda: topologies.envelope
    )
    whole = f"{len(restored.leaves)} leaves restored bit for bit"
    result = replace(result, notes=(whole, *result.notes))
    labels = ("one device, uninterrupted", f"{first.name} > {second.name}")
    return result.record(name, spec, sides, began, (reference, curve), labels, (middle,))


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as free:
        port: int = free.getsockname()[1]
    return port
