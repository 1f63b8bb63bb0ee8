"""Resume checks as assertions: for tests, with a message that names what was lost."""

from __future__ import annotations

from typing import Any

from parity.checks.resume.check import resumes
from parity.checks.running import Train
from parity.results import Resumption

__all__ = ["ResumeBrokenError", "assert_resumes"]


class ResumeBrokenError(AssertionError):
    """A training function that does not resume exactly, or of which that cannot be shown.

    Attributes:
        resumption: The whole verdict.
    """

    def __init__(self, resumption: Resumption) -> None:
        self.resumption = resumption
        super().__init__(resumption.text())


ResumeBrokenError.__module__ = "parity"


def assert_resumes(train: Train, *, steps: int, stop_at: int | None = None, **settings: Any) -> Resumption:
    """Assert that a training function resumes exactly.

    Args:
        train: As of `resumes`, which makes the check.
        steps: Completed steps at which the run ends, at least 3.
        stop_at: Completed steps at the kill, after the first save; by default two thirds of the run.
        settings: Further arguments of `resumes`: `mode`, `scenarios`, `name`, `options`, `workdir`, `keep`,
            `metric`, `ignore`, `processes`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        ResumeBrokenError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: An argument that cannot be used.
        UnknownNameError: There is no such scenario.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails without being stopped.
        MarkError: A mark that is no whole number or goes backwards.

    Example:
        >>> import numpy as np
        >>> def train(folder, steps):
        ...     step, weights, momentum = 0, np.ones(2), np.zeros(2)
        ...     if (folder / "weights.npy").exists():  # the momentum was not saved
        ...         step, weights = int((folder / "step").read_text()), np.load(folder / "weights.npy")
        ...     for step in range(step, steps):
        ...         yield step
        ...         momentum = 0.9 * momentum - 0.1 * weights
        ...         weights = weights + momentum
        ...         np.save(folder / "weights.npy", weights)
        ...         (folder / "step").write_text(f"{step + 1}")
        >>> try:
        ...     assert_resumes(train, steps=6, mode="inline")
        ... except ResumeBrokenError as error:
        ...     print(error.resumption.components)
        ('optimizer.momentum', 'model.params')
    """
    found = resumes(train, steps=steps, stop_at=stop_at, **settings)
    if found.verdict != "holds":
        raise ResumeBrokenError(found)
    return found
