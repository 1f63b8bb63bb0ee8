"""A conformance test of the checkpoint policy: any implementation is run through the table of cases.

`replay` takes what makes an implementation: `PolicyInMemory` is the pure function itself; a side, or a checkpoint
manager of another library, needs an adapter with the methods of `Implementation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from parity import policy
from parity.errors import CheckpointError
from parity.policy.cases import Case, Change, Event, Expected, Late, Restart, Resume, Save, Validated
from parity.policy.rules import Rules, Saved, Which

__all__ = ["Implementation", "Mismatch", "PolicyInMemory", "replay"]


class Implementation(Protocol):
    """The methods through which a case drives the code that keeps the checkpoints."""

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        """Save a checkpoint, remove those that the rules no longer keep, and return when both are done.

        Args:
            step: Completed steps.
            metric: Validation metric of this step; None if it was not measured, perhaps not finite.
            saved_at: Time of the save, in seconds.
        """

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        """Save a checkpoint of a step at which no save is due, if its metric is a new best.

        Args:
            step: Completed steps.
            metric: Validation metric of this step, perhaps not finite.
            saved_at: Time of the save, in seconds.
        """

    def metric(self, step: int, value: float) -> None:
        """Set the metric of a checkpoint after its save.

        Args:
            step: Its step.
            value: The metric, perhaps not finite.

        Raises:
            CheckpointError: There is no checkpoint of this step.
        """

    def restart(self) -> None:
        """End the process, and resume from the latest checkpoint in another one."""

    def rules(self, rules: Rules) -> None:
        """Resume from the latest checkpoint in another process, under other rules."""

    def resume(self, which: Which) -> None:
        """Resume from a checkpoint in another process, giving up the newer ones.

        Raises:
            CheckpointError: There is no such checkpoint; nothing was given up.
        """

    def on_disk(self) -> Iterable[int]:
        """Return the steps of the checkpoints on disk."""

    def best(self) -> int | None:
        """Return the step of the best checkpoint; None if there is none."""

    def latest(self) -> int | None:
        """Return the step of the latest checkpoint; None if there is none."""

    def close(self) -> None:
        """Release threads and files, if there are any."""


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One point in which an implementation departs from a case."""

    case: Case
    row: int
    """Index of the event."""
    what: str
    """`lost 20`, `keeps 20`, `best is 10, not 20`, `latest is 10, not 20`, `accepted`, or `refused: why`."""

    def __str__(self) -> str:
        return f"{self.case.group}: {self.case.name}: after `{self.case.text[self.row].split(' |')[0]}`: {self.what}"


def replay(case: Case, make: Callable[[Rules], Implementation]) -> list[Mismatch]:
    """Run one case, and return every departure of the implementation from it, in the order of events.

    Args:
        case: The case.
        make: Makes an implementation, without checkpoints, under the rules that it is given.

    Example:
        >>> from parity.policy import cases
        >>> replay(cases()[0], PolicyInMemory)
        []
    """
    implementation = make(case.rules)
    found = []
    try:
        for row, (event, expected) in enumerate(case.rows):
            whats = ["accepted"] if expected.refused else []
            try:
                _apply(implementation, event, row)
            except CheckpointError as error:
                whats = [] if expected.refused else [f"refused: {error}"]
            whats += _compare(implementation, expected)
            found += [Mismatch(case=case, row=row, what=what) for what in whats]
    finally:
        implementation.close()
    return found


def _apply(implementation: Implementation, event: Event, row: int) -> None:
    match event:
        case Save():
            implementation.save(event.step, event.metric, float(row) if event.at is None else event.at)
        case Validated():
            implementation.validated(event.step, event.metric, float(row))
        case Late():
            implementation.metric(event.step, event.metric)
        case Restart():
            implementation.restart()
        case Change():
            implementation.rules(event.rules)
        case Resume():
            implementation.resume(event.which)


def _compare(implementation: Implementation, expected: Expected) -> list[str]:
    steps, there = set(expected.steps), set(implementation.on_disk())
    whats = [f"lost {step}" for step in sorted(steps - there)] + [f"keeps {step}" for step in sorted(there - steps)]
    named = {"best": (implementation.best(), expected.best), "latest": (implementation.latest(), expected.latest)}
    for name, (got, wanted) in named.items():
        if got != wanted:
            whats.append(f"{name} is {str(got).lower()}, not {str(wanted).lower()}")
    return whats


class PolicyInMemory:
    """An implementation in memory: `kept` is applied at every save to the checkpoints that were kept before.

    Args:
        rules: The rules to begin with.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.saved: dict[int, Saved] = {}
        """Step to its checkpoint, for those that would be on disk."""

    def save(self, step: int, metric: float | None, saved_at: float) -> None:
        """Add a checkpoint, and remove those that no rule keeps."""
        self.saved[step] = Saved(step=step, metric=metric, saved_at=saved_at)
        stay = self.kept()
        self.saved = {step: saved for step, saved in self.saved.items() if step in stay}

    def validated(self, step: int, metric: float, saved_at: float) -> None:
        """Add a checkpoint if it is a new best and `keep_best` is not 0."""
        new = Saved(step=step, metric=metric, saved_at=saved_at)
        if self._rules.keep_best and policy.is_new_best(self.saved.values(), new, self._rules.mode):
            self.save(step, metric, saved_at)

    def kept(self) -> set[int]:
        """Return the steps that the rules keep now."""
        return policy.kept(self.saved.values(), self._rules)

    def metric(self, step: int, value: float) -> None:
        """Replace the metric of a checkpoint.

        Raises:
            CheckpointError: There is no checkpoint of this step; it was removed, perhaps.
        """
        self._require(step)
        self.saved[step] = replace(self.saved[step], metric=value)

    def restart(self) -> None:
        """Do nothing: the policy has no state but the checkpoints."""

    def rules(self, rules: Rules) -> None:
        """Apply other rules from the next save on."""
        self._rules = rules

    def resume(self, which: Which) -> None:
        """Drop the checkpoints that are newer than the named one.

        Raises:
            CheckpointError: There is no such checkpoint.
        """
        named: dict[Any, int | None] = {"best": self.best(), "latest": self.latest()}
        step = self._require(named.get(which, which))
        self.saved = {other: saved for other, saved in self.saved.items() if other <= step}

    def on_disk(self) -> Iterable[int]:
        """Return the steps of the checkpoints."""
        return self.saved

    def best(self) -> int | None:
        """Return the step of the best checkpoint."""
        found = policy.best(self.saved.values(), self._rules.mode)
        return None if found is None else found.step

    def latest(self) -> int | None:
        """Return the step of the latest checkpoint."""
        found = policy.latest(self.saved.values())
        return None if found is None else found.step

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _require(self, step: Any) -> int:
        if step not in self.saved:
            raise CheckpointError(
                f"no checkpoint of step {step} (steps: {', '.join(map(str, self.saved)) or 'none'})"
            )
        return int(step)
