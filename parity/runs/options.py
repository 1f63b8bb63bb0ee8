"""The arguments of one process of a run, and its outcome: what it resumes from, who watches it, how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from parity.contract import StepRecord, Validation
from parity.runs.remote import NO_REMOTE, RemoteCopy
from parity.runs.resume import Log, ResumeChoice
from parity.runs.signals import DEADLINE_SECONDS

__all__ = ["QUIET", "FaultInjection", "Observers", "OnError", "ProcessOptions", "ProcessOutcome"]

OnError = Literal["stop", "continue"]
"""What a run does when a checkpoint or records cannot be written."""


def _ignore(value: object) -> None:
    del value


@dataclass(frozen=True, kw_only=True)
class FaultInjection:
    """What the resume check asks of a process beside training."""

    trace: bool = False
    """Write the digest of every leaf of the live state to `states.jsonl` when restoring, saving and stopping, and its
    values beside it."""
    pause_at: int | None = None
    """Pause once the records of this step, at which a chunk ends then, are on disk; 0: before the first step of this
    process. Nothing more is computed or saved."""
    pause: Callable[[], None] | None = None
    """What to do then: None waits to be killed; a check within one process raises instead."""


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """How one process treats its run; nothing here belongs to the run itself."""

    resume: ResumeChoice = "auto"
    """What to start from."""
    or_next: bool = False
    """With `resume="best"`: whether the next best checkpoint is taken where the best is damaged."""
    on_error: OnError = "stop"
    """Whether a failed save stops the run, or is reported and the run continues."""
    deadline: float = DEADLINE_SECONDS
    """Seconds that a process may take to save after a signal to stop."""
    remote: RemoteCopy = NO_REMOTE
    """Where its checkpoints are copied to."""
    faults: FaultInjection = FaultInjection()
    """What a resume check asks for."""


@dataclass(frozen=True, kw_only=True)
class Observers:
    """Functions that are called as a run proceeds; an error in one ends the run."""

    log: Log = print
    """Takes one line for people."""
    on_step: Callable[[StepRecord], None] = _ignore
    """Called with every step record once it is on disk."""
    on_validation: Callable[[Validation], None] = _ignore
    """Called with every validation once it is on disk."""


QUIET = Observers(log=_ignore)
"""Observers that do nothing."""


@dataclass(frozen=True, kw_only=True)
class ProcessOutcome:
    """How a process ended."""

    step: int
    resumed_from: int | None
    signal: int | None = None
    """The signal that stopped it, after saving."""
    failures: list[str] = field(default_factory=list)
    """What could not be saved, of a run that continued all the same."""
