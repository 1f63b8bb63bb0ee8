"""The scalars that trackers log of a step, and what earlier processes of the run have logged already."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from parity.contract import StepRecord, Validation, read_records, same, splice
from parity.runs import RunDirectory
from parity.storage import read_lines

__all__ = ["THROUGHPUT", "History", "Point", "point_of"]

THROUGHPUT = "throughput/steps_per_second"
"""The one scalar that is not the same when a step is repeated."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The scalars of one completed step."""

    step: int
    """Completed steps."""
    scalars: dict[str, float]
    """Name to value, under `train/`, `validation/` and `throughput/`; non-finite values are kept."""

    def within(self, other: Point | None) -> bool:
        """Return whether another point of the step has these scalars too, bit for bit; throughput is not compared."""
        return other is not None and all(
            name in other.scalars and same(value, other.scalars[name])
            for name, value in self.scalars.items()
            if name != THROUGHPUT
        )


def point_of(record: StepRecord | Validation) -> Point:
    """Return what is shown of a record.

    Example:
        >>> point_of(Validation(attempt=0, step=80, metric="accuracy", value=0.5, loss=0.7)).scalars
        {'validation/loss': 0.7, 'validation/accuracy': 0.5}
    """
    if isinstance(record, Validation):
        scalars = {"validation/loss": record.loss, f"validation/{record.metric}": record.value}
        return Point(step=record.step, scalars=scalars)
    scalars = {
        "train/loss": record.loss,
        "train/lr": record.lr,
        "train/grad_norm": record.grad_norm,
        "train/loss_scale": record.loss_scale,
        "train/skipped": float(record.skipped),
        "train/epoch": float(record.epoch),
        THROUGHPUT: 1 / record.seconds if record.seconds else math.inf,
    }
    return Point(step=record.step, scalars=scalars)


class History:
    """The processes of a run up to this one.

    A tracker has what reached it from earlier processes; the records on disk say what the curve is. From both follows
    what to log again.
    """

    def __init__(self, run: RunDirectory, attempt: int) -> None:
        self.run, self.attempt = run, attempt
        self._starts = {row["attempt"]: row["resumed_from"] or 0 for row in read_lines(run.attempts)}

    @property
    def start(self) -> int:
        """Return the step that this process continues from."""
        return int(self._starts[self.attempt])

    def standing(self, step: int, since: int, until: int | None = None) -> int:
        """Return up to which step a log that reaches a step still shows the curve.

        Args:
            step: Last step that was logged.
            since: The attempt that logged it; the starts of later ones cut the curve off.
            until: The last attempt to regard; None for this one.
        """
        last = self.attempt if until is None else until
        return min([step, *(start for attempt, start in self._starts.items() if since < attempt <= last)])

    def points(self, after: int, until: int) -> list[Point]:
        """Return the spliced curve on disk, of the steps after one up to another."""
        if until <= after:
            return []
        steps = read_records(self.run.steps, StepRecord)
        return _merge(steps, read_records(self.run.validations, Validation), after, until)

    def replaced(self, attempt: int, after: int, until: int) -> dict[int, Point]:
        """Return the steps after one up to another as they were when an attempt had ended, given up since or not."""
        if until <= after:
            return {}
        homes = [self.run, *(RunDirectory(home) for home in sorted(self.run.path.glob("abandoned/*")))]
        steps = [r for home in homes for r in read_records(home.steps, StepRecord) if r.attempt <= attempt]
        validations = [
            r for home in homes for r in read_records(home.validations, Validation) if r.attempt <= attempt
        ]
        return {point.step: point for point in _merge(steps, validations, after, until)}


def _merge(steps: Iterable[StepRecord], validations: Iterable[Validation], after: int, until: int) -> list[Point]:
    """Return one point for each step in a range of the spliced records, that of its validation included."""
    measured = {step: point_of(record).scalars for step, record in splice(validations).items()}
    return [
        Point(step=step, scalars=point_of(record).scalars | measured.get(step, {}))
        for step, record in splice(steps).items()
        if after < step <= until
    ]
