"""Logging of training to TensorBoard and to Weights & Biases: extras, imported only when one is asked for.

Knows records and a run's identity, no trainer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from parity.contract import RunIdentity, StepRecord, Validation
from parity.errors import ParityError, UnknownNameError
from parity.runs import RunDirectory
from parity.trackers.history import History, Point, point_of

__all__ = ["TRACKERS", "MissingTrackerError", "Tracker", "Trackers", "load"]

TRACKERS = ("tensorboard", "wandb")
"""Names of the trackers; each is also the extra that installs it, and a folder of the run directory."""

BATCH_SECONDS = 5.0
"""Longest time that a record waits for others before all are logged, while records keep coming."""
BATCH_RECORDS = 1000
"""Most records that wait: at 5 microseconds a step, five seconds would be a million of them."""

Report = Callable[[str], None]
"""Takes one line for people."""


class MissingTrackerError(ParityError, ImportError):
    """A tracker whose package is not installed.

    Args:
        tracker: Its name.
        problem: What the import said.

    Attributes:
        tracker: Its name; also the name of the extra to install.
    """

    def __init__(self, tracker: str, problem: str) -> None:
        self.tracker = tracker
        super().__init__(f"--log {tracker}: {problem}; pip install 'parity-suite[{tracker}]'")


class Tracker(Protocol):
    """Where points go; any exception it raises switches it off."""

    def open(self, history: History, identity: RunIdentity, report: Report) -> None:
        """Begin, or continue after an earlier process, so that every step up to `history.start` is there once.

        Args:
            history: The processes of the run up to this one, and its curve on disk.
            identity: The run.
            report: Takes one line for people.
        """

    def log(self, points: Sequence[Point]) -> None:
        """Log points of this process, in the order of their steps; a validation follows its step."""

    def close(self, *, failed: bool = False) -> None:
        """Write or upload everything, and release what is held.

        Args:
            failed: Whether an error ended the training.
        """


def load(names: Iterable[str]) -> dict[str, Tracker]:
    """Return trackers by name, each once; importing their packages is all that happens.

    Raises:
        UnknownNameError: No such tracker.
        MissingTrackerError: Its package cannot be imported; names the extra to install.
    """
    return {name: _load(name) for name in dict.fromkeys(names)}


def _load(name: str) -> Tracker:
    try:
        if name == "tensorboard":
            from parity.trackers.tensorboard import TensorBoard

            return TensorBoard()
        if name == "wandb":
            from parity.trackers.wandb import WeightsAndBiases

            return WeightsAndBiases()
    except ImportError as error:
        raise MissingTrackerError(name, str(error)) from error
    raise UnknownNameError("tracker", name, TRACKERS)


class Trackers:
    """Hands the records of one process to trackers, in batches; a context manager.

    Nothing that a tracker does ends the training: one that fails is reported in one line and left out from then on.

    Args:
        trackers: Name to tracker, as `load` returns them.
        directory: The run directory.
        identity: The run.
        report: Takes one line for people.
    """

    def __init__(
        self, trackers: Mapping[str, Tracker], directory: Path, identity: RunIdentity, report: Report
    ) -> None:
        self._trackers = dict(trackers)
        self._run, self._identity, self._report = RunDirectory(directory), identity, report
        self._waiting: list[StepRecord | Validation] = []
        self._handed_on: float | None = None
        self._step = 0

    def on_record(self, record: StepRecord | Validation) -> None:
        """Log a record that is on disk, with others a little later."""
        if not self._trackers:
            return
        self._waiting.append(record)
        now = time.monotonic()
        if self._handed_on is None:  # how this process began is on disk now
            self._open(record.attempt)
        elif now - self._handed_on < BATCH_SECONDS and len(self._waiting) < BATCH_RECORDS:
            return
        self._hand_on()
        self._handed_on = now

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._handed_on is None and self._trackers:
            self._catch_up()
        self._hand_on()
        if self._handed_on is not None:
            self._each(lambda tracker: tracker.close(failed=kind is not None))

    def _catch_up(self) -> None:
        """Open the trackers of a process that had nothing to train: a kill may have kept back the last steps."""
        attempt = self._run.next_attempt() - 1
        if attempt >= 0:
            self._open(attempt)
            self._handed_on = time.monotonic()

    def _open(self, attempt: int) -> None:
        self._each(lambda tracker: tracker.open(History(self._run, attempt), self._identity, self._report))

    def _hand_on(self) -> None:
        if not self._waiting:
            return
        points = [point_of(record) for record in self._waiting]
        self._waiting = []
        self._step = points[-1].step
        self._each(lambda tracker: tracker.log(points))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # of any kind: the packages are not ours, and training continues
                problem = " ".join(str(error).split())[:400] or type(error).__name__
                self._report(
                    f"warning: {name} is off after step {self._step}: {problem}; training continues without it"
                )
                del self._trackers[name]
                with suppress(Exception):
                    tracker.close()
