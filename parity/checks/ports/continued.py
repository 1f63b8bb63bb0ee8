"""A handover from a checkpoint that is there: both trainers continue from it, and train alike to the end.

The trainer that wrote it continues from it by its own resume, the other from what the conversion made of it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from parity.checks.ports.basis import Basis, nothing_paired
from parity.checks.ports.handover import Convert, run_conversion
from parity.checks.ports.judge import Judged, PortDifference
from parity.checks.ports.session import Sides, crossing, open_sides, suspects_of
from parity.checks.ports.twins import train_alike
from parity.checks.running import Compute, Train, open_workdir
from parity.convert import Options, convert, writer_of
from parity.errors import CheckpointError, SpecError
from parity.mapping import PairRule
from parity.results import Crossing

__all__ = ["conversion", "hand_over"]


class _Continued:
    """A training function that finds files in its folder when it begins.

    Args:
        train: The function.
        files: Directory whose contents it finds in each new folder.
    """

    def __init__(self, train: Train, files: Path) -> None:
        self.__wrapped__ = train
        self.__qualname__ = getattr(train, "__qualname__", type(train).__qualname__)
        self.__module__ = getattr(train, "__module__", "?")
        self.files = files

    def __call__(self, folder: Path, **options: Any) -> Any:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            shutil.copytree(self.files, folder, dirs_exist_ok=True)
        return self.__wrapped__(folder, **options)


def hand_over(
    checkpoint: Path,
    first: Train,
    second: Train,
    *,
    convert: Convert,
    steps: int,
    place: str | None = None,
    rules: Sequence[PairRule] = (),
    precision: Compute | None = None,
    options: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    name: str | None = None,
    workdir: Path | None = None,
) -> Crossing:
    """Check that a training goes on in another trainer as in its own, from one checkpoint, and return the verdict.

    Args:
        checkpoint: A file or directory that the first trainer saved. It is only read.
        first: The trainer that saved it, which continues from it by its own resume.
        second: The one that takes over.
        convert: Called as `convert(source, target)` with two folders: the first's, which holds the checkpoint, and
            an empty one, into which goes what the second resumes from.
        steps: Completed steps at which both end, counted from the start of the training.
        place: Where the first looks for the checkpoint in its folder; by default its own name.
        rules: As of `twins_agree`.
        precision: As of `twins_agree`.
        options: Further keyword arguments for both functions.
        seeds: As of `twins_agree`.
        name: Name of the record; by default those of the functions.
        workdir: Directory that keeps the folders of the runs; by default a temporary one.

    Returns:
        The verdict: `holds`, `broken` with what was lost, or `inconclusive` with the reason.

    Raises:
        SpecError: An argument that cannot be used.
        CheckpointError: There is no such checkpoint.
        TrainerError: A function that makes no marks, or fails; a conversion that fails or writes nothing.
        MarkError: A mark that is no whole number or goes backwards.

    Numerics:
        The state that is taken over: bitwise. What follows: as of `twins_agree`.
    """
    began = time.perf_counter()
    if not checkpoint.exists():
        raise CheckpointError(f"{checkpoint} does not exist")
    if place is not None and (Path(place).is_absolute() or ".." in Path(place).parts):
        raise SpecError("place", f"must lie in the trainer's folder, got {place!r}")
    with ExitStack() as stack:
        root = open_workdir(stack, workdir)
        here, there = root / "own", root / "converted"
        there.mkdir(parents=True)
        _copy(checkpoint, here / (place or checkpoint.name))
        run_conversion(convert, here, there)
        trains = _Continued(first, here), _Continued(second, there)
        sides = open_sides(stack, *trains, steps, "inline", options, root / "runs")
        judged, basis = _compare(sides, rules, precision, seeds)
    at = sides.a.marked[0]
    when = "at the handover" if judged.differences and judged.differences[0].step == at else ""
    suspects = suspects_of(judged.differences, sides, "there", when)
    taken = (at,) if at else ()
    return crossing("handover", sides, judged, basis, suspects, name=name, began=began, handovers=taken)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _compare(
    sides: Sides, rules: Sequence[PairRule], precision: Compute | None, seeds: int | None
) -> tuple[Judged, Basis]:
    a, b = sides.a, sides.b
    if a.marked[0] == 0:
        note = f"{a.name} does not continue from the checkpoint where it was put: say where it looks for it (place)"
        return Judged("inconclusive", notes=[note]), nothing_paired(precision)
    if a.marked != b.marked:
        here, there = (f"a run from step {t.marked[0]} to {t.marked[-1]}" for t in (a, b))
        component = "checkpoint.restore" if b.marked[0] == 0 else "counters.step"
        lost = PortDifference(component, "function", "function", a.marked[0], here, there, float("inf"))
        return Judged("broken", differences=[lost]), nothing_paired(precision)
    unpaired = "no parameter could be paired: what was converted has other values, or leaves that are joined or split"
    return train_alike(sides, rules, precision, seeds, unpaired=unpaired, taken_over=True)


def conversion(
    checkpoint: str, place: str, to: str, options: Options | None = None, like: Path | None = None
) -> Convert:
    """Return what takes a checkpoint from one folder to the other, as `parity convert` does.

    Args:
        checkpoint: Where it lies in the folder of the trainer that saved it.
        place: Where the other looks for its own in its folder.
        to: Format of what is written.
        options: What was asked for of the conversion, such as its rules; None where the names are the same.
        like: As of `parity.convert.convert`.

    Raises:
        CheckpointError: There is no writer of the format.
    """
    writer = writer_of(to)
    asked = options or Options()

    def carry(source: Path, target: Path) -> None:
        made = target / place
        made.parent.mkdir(parents=True, exist_ok=True)
        ledger = convert(source / checkpoint, made, writer, asked, like=like, now=time.time())
        if ledger.refused or not ledger.crossed:
            refused = ledger.of("refused")
            why = f"{refused[0].leaf}: {refused[0].how}" if refused else "it holds nothing"
            raise CheckpointError(f"{checkpoint} is not converted: {why}")

    return carry
