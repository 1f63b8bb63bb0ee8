"""A run rehearsed without training: processes that start, record, are killed or end, and what is shown of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from parity.contract import StepRecord, Validation, read_records, record_line, same, splice
from parity.runs import RunDirectory
from parity.spec import identity_of, preset
from parity.storage import append
from parity.trackers import Tracker, Trackers
from parity.trackers.history import THROUGHPUT, point_of
from tests.support.small import record

SPEC = preset("mlp-digits")
IDENTITY = identity_of(SPEC)
CHUNK, VALIDATE, SAVE = 5, 10, 20
"""Steps of a chunk, between validations and between checkpoints."""

Shown = dict[str, list[tuple[int, float]]]
"""Tag to the pairs (step, value) that a viewer draws, in its order."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a rehearsed run."""

    steps: int
    """How many it trains, at least."""
    killed: bool = False
    """Whether what it has not handed on is lost."""
    back: int | None = None
    """Checkpoints to go back by, giving up what is newer; None: on from the newest."""
    logged: bool = True
    """Whether it was started with `--log`."""
    variant: int = 0
    """Its losses: another variant's differ, but for the first steps behind a checkpoint."""
    unvalidated: bool = False
    """Whether it ends between its last step and the validation of it."""


stories = st.lists(
    st.builds(
        Process,
        steps=st.integers(1, 45),
        killed=st.booleans(),
        back=st.none() | st.integers(0, 2),
        logged=st.sampled_from([True, True, False]),
        variant=st.sampled_from([0, 0, 1]),
        unvalidated=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=5,
)
"""Processes of a run, in order; `Rehearsal.finish` is to follow."""


@dataclass
class Rehearsal:
    """A run directory, filled process by process."""

    path: Path
    tracker: Callable[[], Tracker]
    on_kill: Callable[[Tracker], None] = lambda tracker: tracker.close()
    """What a kill does to a tracker; closing an event file writes nothing."""
    said: list[str] = field(default_factory=list)
    reached: int = 0

    def __post_init__(self) -> None:
        self.run = RunDirectory(self.path)
        self.run.open(IDENTITY, "torch")

    def play(self, process: Process) -> None:
        """Start a process, train, and let it end as it is to."""
        newest = self.reached // SAVE * SAVE
        start = max(0, newest - (process.back or 0) * SAVE)
        attempt = self.run.next_attempt()
        if process.back is not None:
            self.run.abandon_after(start, attempt, records=True)
        self.run.begin_attempt(attempt, start or None, {})
        trackers = {"it": self.tracker()} if process.logged else {}
        tracked = Trackers(trackers, self.path, IDENTITY, self.said.append)
        self.reached = start
        while (left := start + process.steps - self.reached) > 0:
            self._chunk(attempt, process.variant, tracked, validate=not process.unvalidated or left > CHUNK)
        if not process.killed:
            tracked.__exit__(None, None, None)
        for tracker in trackers.values() if process.killed else ():
            self.on_kill(tracker)

    def finish(self, variant: int = 0) -> None:
        """Go on to a step that no process before came to, and end well."""
        self.play(Process(steps=400 - self.reached // SAVE * SAVE, variant=variant))

    def _chunk(self, attempt: int, variant: int, tracked: Trackers, *, validate: bool) -> None:
        steps = range(self.reached + 1, self.reached + CHUNK + 1)
        records = [recorded(step, attempt, variant) for step in steps]
        append(self.run.steps, [record_line(r) for r in records])
        for each in records:
            tracked.on_record(each)
        self.reached += CHUNK
        if self.reached % VALIDATE == 0 and validate:
            value = 1 / (self.reached + variant)
            validation = Validation(
                attempt=attempt, step=self.reached, metric="accuracy", value=value, loss=3 * value
            )
            append(self.run.validations, [record_line(validation)])
            tracked.on_record(validation)


def recorded(step: int, attempt: int, variant: int) -> StepRecord:
    """Return a record whose values have all their bits, non-finite ones among them."""
    return record(
        step,
        attempt,
        loss=float("nan") if step % 17 == 0 else float(np.sin(step)) + (variant if step % SAVE > 3 else 0),
        lr=1e-3 / step,
        grad_norm=float("inf") if step % 13 == 0 else step / 3,
        loss_scale=2.0 ** (step % 30),
        skipped=step % 13 == 0,
        epoch=step // 28,
        seconds=0.001 * (1 + attempt) + step * 1e-7,
    )


def expected(path: Path) -> Shown:
    """Return the spliced curve of a run directory."""
    shown: Shown = {}
    for name, kind in (("steps", StepRecord), ("validations", Validation)):
        for step, each in splice(read_records(path / f"{name}.jsonl", kind)).items():
            for tag, value in point_of(each).scalars.items():
                shown.setdefault(tag, []).append((step, value))
    return shown


def faults(wanted: Mapping[str, list[tuple[int, float]]], shown: Shown, rounded: type = float) -> list[str]:
    """Say what is wrong with a curve that is shown: tags, steps, values, each bit for bit.

    Args:
        wanted: The curve.
        shown: What a viewer draws.
        rounded: What the format keeps of a value.
    """
    found = [f"tag {tag}" for tag in wanted.keys() ^ shown.keys()]
    for tag in wanted.keys() & shown.keys():
        steps = [step for step, _ in shown[tag]]
        right = [step for step, _ in wanted[tag]]
        if steps != right:
            twice = sorted({step for step in steps if steps.count(step) > 1})
            found.append(f"{tag}: missing {sorted({*right} - {*steps})[:3]}, twice {twice[:3]}")
            continue
        pairs = zip(wanted[tag], shown[tag], strict=True)
        found += [f"{tag}: step {step}: {a} is {b}" for (step, a), (_, b) in pairs if not same(float(rounded(a)), b)]
    return sorted(found)


def without_throughput(shown: Shown) -> Shown:
    """Return a curve without what differs whenever a step is repeated."""
    return {tag: values for tag, values in shown.items() if tag != THROUGHPUT}
