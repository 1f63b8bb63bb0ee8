"""Resume checks as assertions: for tests, with a message that names what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from parity.checks.live.check import Mode, check_trainer
from parity.checks.live.inline import Train
from parity.results import Resumption

__all__ = ["ResumeBrokenError", "assert_resumes", "resumes"]


class ResumeBrokenError(AssertionError):
    """A training function that does not resume exactly, or of which that cannot be shown.

    Attributes:
        resumption: The whole verdict.
    """

    def __init__(self, resumption: Resumption) -> None:
        self.resumption = resumption
        super().__init__(resumption.text())


ResumeBrokenError.__module__ = "parity"


def resumes(
    train: Train,
    *,
    steps: int,
    stop_at: int | None = None,
    mode: Mode = "auto",
    roads: str | Iterable[str] = "quick",
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    workdir: Path | None = None,
) -> Resumption:
    """Check that a training function resumes exactly, and return the verdict.

    The function is trained twice without a stop, then killed and resumed along every road, and the live state is
    compared at every mark, leaf by leaf: parameters, buffers, optimizer, schedule, scaler, modes, generators, data.

    Args:
        train: `train(folder)`, with one mark per step: a generator that yields the completed steps, or a function
            that calls `parity.mark`. It saves into the folder, and continues from what it finds there.
        steps: Completed steps at which the run ends; passed to the function if it takes `steps`.
        stop_at: Completed steps at the kill, after the first save; by default two thirds of the run.
        mode: `process`: each run in a process of its own, ended by SIGKILL; `inline`: all in this process; `auto`:
            `process` where the function can be imported, and a note where it cannot.
        roads: `quick`, `all`, or names of roads (`parity.checks.live.ROADS`).
        name: Name of the record; by default the function's.
        options: Further keyword arguments for the function.
        workdir: Directory that keeps the folders of the runs; by default a temporary one.

    Returns:
        The verdict: `holds`, `broken` with its suspects, or `inconclusive` with the reason.

    Raises:
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails without being stopped.

    Numerics:
        Bitwise; no tolerance. What differs between two equal runs is no evidence, and if what is trained differs
        there, nothing is judged.
    """
    return check_trainer(
        train, steps=steps, stop_at=stop_at, mode=mode, roads=roads, name=name, options=options, workdir=workdir
    )


def assert_resumes(train: Train, *, steps: int, stop_at: int | None = None, **settings: Any) -> Resumption:
    """Assert that a training function resumes exactly; arguments as of `resumes`.

    Raises:
        ResumeBrokenError: It does not, or that cannot be judged; the message has at most 25 lines.
    """
    found = resumes(train, steps=steps, stop_at=stop_at, **settings)
    if found.verdict != "holds":
        raise ResumeBrokenError(found)
    return found
