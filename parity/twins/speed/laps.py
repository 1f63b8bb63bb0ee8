"""Laps: a trainer that runs the same steps from the same start again and again, and what makes two the same work."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parity.contract import StepRecord
from parity.errors import WorkError
from parity.spec import Precision
from parity.twins import Prefetcher, open_stream

__all__ = ["Lap", "rewinding", "same_work"]

EQUAL = ("batch", "lr", "samples", "epoch")
"""What every way to run a step must have alike, bit for bit."""

COMPARED = 10
"""First steps whose losses are compared between two ways; later ones drift apart by rounding, as they must."""

CLOSE: dict[Precision, float] = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 5e-2, "float16": 5e-2}
"""Relative difference of those losses that rounding may make; a step that does other work is off by far more."""


def rewinding(trainer: Any) -> Callable[[], None]:
    """Return a function that puts a twin back to where it is now; nothing is fetched ahead, the order is drawn anew.

    Args:
        trainer: A trainer of a side.
    """
    start = trainer.export_state()

    def rewind() -> None:
        trainer.import_state(start)
        trainer.feed = Prefetcher(open_stream(trainer.spec, trainer.dataset), trainer._place)

    return rewind


@dataclass(kw_only=True)
class Lap:
    """One way to run some steps, with the seconds of its timed rounds."""

    mode: str
    """What the way is called: `scan`, `loop`, `eager`, `compiled`."""
    trainer: Any
    """A twin that has run nothing yet."""
    steps: int
    seconds: list[float] = field(default_factory=list)
    first: list[StepRecord] = field(default_factory=list)
    """Records of the untimed round."""

    def __post_init__(self) -> None:
        self._rewind = rewinding(self.trainer)

    def warm(self) -> None:
        """Run the steps once, untimed: compilation, caches and the allocator are paid for here."""
        self._rewind()
        self.first = list(self.trainer.steps(self.steps))

    def run(self) -> None:
        """Run the steps from the start and note the seconds.

        Raises:
            WorkError: The losses are not those of the untimed round, bit for bit.
        """
        self._rewind()
        gc.collect()  # the garbage of other rounds is not this round's cost
        began = time.perf_counter()
        records = list(self.trainer.steps(self.steps))
        self.seconds.append(time.perf_counter() - began)
        for step in _other_losses(self.first, records):
            raise WorkError(self.mode, f"round {len(self.seconds)} has another loss at step {step} than the first")


def same_work(a: Lap, b: Lap, precision: Precision) -> None:
    """Refuse two ways of which one does other work than the other: a faster way to other numbers is no way.

    Args:
        a: A way after its untimed round.
        b: Another one.
        precision: What bounds the difference of their losses.

    Raises:
        WorkError: They differ in number of steps, batches or learning rates, or by more than rounding in the losses.
    """
    if len(a.first) != len(b.first):
        raise WorkError(b.mode, f"took {len(b.first)} steps, {a.mode} took {len(a.first)}")
    for x, y in zip(a.first, b.first, strict=True):
        for name in EQUAL:
            if getattr(x, name) != getattr(y, name):
                raise WorkError(b.mode, f"has another {name} than {a.mode} at step {x.step}")
    for x, y in zip(a.first[:COMPARED], b.first[:COMPARED], strict=True):
        if not math.isclose(x.loss, y.loss, rel_tol=CLOSE[precision]):
            raise WorkError(b.mode, f"has the loss {y.loss:.9g} at step {x.step}, {a.mode} has {x.loss:.9g}")


def _other_losses(a: Sequence[StepRecord], b: Sequence[StepRecord]) -> list[int]:
    """Return the steps at which two curves differ; of curves of unequal length the first step that one lacks."""
    differ = [x.step for x, y in zip(a, b, strict=False) if x.loss.hex() != y.loss.hex()]
    return differ or ([min(len(a), len(b)) + 1] if len(a) != len(b) else [])
