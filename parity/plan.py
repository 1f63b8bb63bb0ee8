"""What a run does when: where chunks are cut (saves, validations, stops, time), and which checkpoints stay."""

from __future__ import annotations

import math

from parity import policy
from parity.spec import RunSpec

__all__ = [
    "Pace",
    "chunk_length",
    "keeping",
    "next_stop",
    "saves_at",
    "saves_new_best",
    "validates_at",
    "warn_of_intervals",
]


def saves_at(spec: RunSpec, step: int) -> bool:
    """Tell whether a run saves at a step."""
    return step % spec.save.every == 0


def validates_at(spec: RunSpec, step: int) -> bool:
    """Tell whether a run validates at a step."""
    return spec.validate_every > 0 and step % spec.validate_every == 0


def saves_new_best(spec: RunSpec) -> bool:
    """Tell whether a run saves a validation that is a new best at once, also where no save is due."""
    if not spec.validate_every or not spec.save.keep_best:
        return False
    return spec.save.on_best == "always" or (spec.save.on_best == "auto" and not _intervals_meet(spec))


def warn_of_intervals(spec: RunSpec) -> str | None:
    """Return a sentence for people where saves and validations rarely or never fall on one step, else None."""
    if not spec.validate_every or not spec.save.keep_best or _intervals_meet(spec):
        return None
    save, validate = spec.save.every, spec.validate_every
    common = math.lcm(save, validate)
    meet = f"meet every {common} steps only" if common <= spec.steps else f"never meet in {spec.steps} steps"
    then = (
        "a validation that is a new best is saved at once (save.on_best)"
        if saves_new_best(spec)
        else "no other validation can be the best checkpoint; --set save.on_best=always saves a new best at once"
    )
    return f"save.every={save} and validate_every={validate} {meet}: {then}"


def _intervals_meet(spec: RunSpec) -> bool:
    """Tell whether every save is validated, or every validation saved, by the intervals alone."""
    save, validate = spec.save.every, spec.validate_every
    return save % validate == 0 or validate % save == 0


def keeping(spec: RunSpec) -> policy.Rules:
    """Return the rules by which a run keeps checkpoints."""
    save = spec.save
    return policy.Rules(
        mode=policy.mode_of(spec.metric),
        keep_latest=save.keep_latest,
        keep_best=save.keep_best,
        keep_every=save.keep_every,
        keep_seconds=save.keep_seconds,
    )


def next_stop(spec: RunSpec, step: int, until: int) -> int:
    """Return the first step after `step` at which the loop saves, validates or stops.

    Example:
        >>> from parity.spec import preset
        >>> next_stop(preset("mlp-digits"), 250, 1000)
        300
    """
    intervals = [spec.save.every] + ([spec.validate_every] if spec.validate_every else [])
    return min([until, *(step - step % every + every for every in intervals)])


def chunk_length(spec: RunSpec, step: int, until: int, limit: int) -> int:
    """Return how many steps the chunk after `step` holds: at most `limit`, and never past a stop."""
    return max(0, min(limit, next_stop(spec, step, until) - step))


class Pace:
    """The most steps a chunk may hold, halved while chunks take longer than they should.

    The first chunk of each length is not judged: it pays for compilation.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.limit = spec.execution.chunk
        self._seconds = spec.execution.chunk_seconds
        self._seen: set[int] = set()

    def note(self, steps: int, seconds: float) -> None:
        """Record what a chunk took."""
        if steps in self._seen and seconds > self._seconds and self.limit > 1:
            self.limit = max(1, min(steps, self.limit) // 2)
        self._seen.add(steps)
