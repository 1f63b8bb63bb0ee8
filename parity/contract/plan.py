"""The schedule of a run: when it saves, validates and stops, how long a chunk may be, what it keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from parity import policy

__all__ = ["Pace", "RunPlan"]


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What the harness knows of a run beside its identity; nothing here changes what a step computes."""

    steps: int
    """Where to stop."""
    save_every: int
    """Steps between saves; the last step is always saved."""
    saves_new_best: bool = False
    """Whether a validation that is a new best is saved at once, also where no save is due."""
    validate_every: int = 0
    """Steps between validations; 0 turns them off."""
    metric: str = "loss"
    """What the best checkpoint is judged by; the name that validations carry."""
    keep: policy.Rules = field(default_factory=lambda: policy.Rules(mode="min"))
    """Which checkpoints stay, and whether a larger or a smaller metric is better."""
    scaled: bool = False
    """Whether a loss scaler skips steps that overflow."""
    max_skips: int = 20
    """A run stops after this many skipped steps in a row."""
    metric_moves: bool = False
    """Whether what a validation measures changes the steps after it, as a rate that is lowered on a plateau."""
    chunk: int = 1
    """Most steps in one chunk."""
    chunk_seconds: float = math.inf
    """Longest a chunk should take."""

    @property
    def mode(self) -> policy.Mode | None:
        """Return whether a larger or a smaller metric is better; None where no best is asked for."""
        return self.keep.mode

    def saves_at(self, step: int) -> bool:
        """Return whether a run saves at a step by its interval."""
        return step % self.save_every == 0

    def validates_at(self, step: int) -> bool:
        """Return whether a run validates at a step."""
        return self.validate_every > 0 and step % self.validate_every == 0

    def next_stop(self, step: int, until: int) -> int:
        """Return the first step after `step` at which the loop saves, validates or stops.

        Args:
            step: Completed steps.
            until: The step at which the loop stops.

        Example:
            >>> RunPlan(steps=1000, save_every=100).next_stop(250, 1000)
            300
        """
        intervals = [self.save_every] + ([self.validate_every] if self.validate_every else [])
        return min([until, *(step - step % every + every for every in intervals)])

    def chunk_length(self, step: int, until: int, limit: int) -> int:
        """Return how many steps the chunk after `step` holds: at most `limit`, and never past a stop.

        Args:
            step: Completed steps.
            until: The step at which the loop stops.
            limit: Most steps of a chunk; see `Pace`.

        Example:
            >>> plan = RunPlan(steps=1000, save_every=100)
            >>> plan.chunk_length(250, 1000, 20), plan.chunk_length(290, 1000, 20)
            (20, 10)
        """
        return max(0, min(limit, self.next_stop(step, until) - step))

    def warning(self) -> str | None:
        """Return a sentence for people where saves and validations rarely or never fall on one step, else None."""
        save, validate = self.save_every, self.validate_every
        if not validate or not self.keep.keep_best or save % validate == 0 or validate % save == 0:
            return None
        common = math.lcm(save, validate)
        meet = f"meet every {common} steps only" if common <= self.steps else f"never meet in {self.steps} steps"
        then = (
            "a validation that is a new best is saved at once (save.on_best)"
            if self.saves_new_best
            else "no other validation can be the best checkpoint; --set save.on_best=always saves a new best at once"
        )
        return f"save.every={save} and validate_every={validate} {meet}: {then}"


class Pace:
    """The most steps a chunk may hold, halved while chunks take longer than they should.

    The first chunk of each length is not judged: it pays for compilation.

    Args:
        plan: Gives the most steps to begin with, and the longest that a chunk should take.

    Example:
        >>> pace = Pace(RunPlan(steps=1000, save_every=100, chunk=40, chunk_seconds=5.0))
        >>> for seconds in (30.0, 8.0):  # the first compiles
        ...     pace.note(40, seconds)
        ...     print(pace.limit)
        40
        20
    """

    def __init__(self, plan: RunPlan) -> None:
        self.limit = plan.chunk
        self._seconds = plan.chunk_seconds
        self._seen: set[int] = set()

    def note(self, steps: int, seconds: float) -> None:
        """Record what a chunk took.

        Args:
            steps: Steps of the chunk.
            seconds: Its wall time.
        """
        if steps in self._seen and seconds > self._seconds and self.limit > 1:
            self.limit = max(1, min(steps, self.limit) // 2)
        self._seen.add(steps)
