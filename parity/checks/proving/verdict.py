"""The verdict on a port: what each stage found, in the order in which a training computes things."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.results import Verdict

__all__ = ["COMPUTED", "STAGES", "PortProof", "PortStage"]

STAGES = ("interface", "batches", "forward", "loss", "gradients", "update", "steps", "initial values", "resume",
          "handover")  # fmt: skip
"""In this order; the first that parts is the last that is looked at."""


COMPUTED = ("forward", "loss", "gradients", "update", "steps")
"""Stages whose values are rounded: what parts there in float64 can be hidden by the rounding of a narrower type."""


@dataclass(frozen=True)
class PortStage:
    """What was found at one stage."""

    name: str
    verdict: Verdict
    """`holds`, `broken`, or `inconclusive` where it could not be looked at."""
    said: str
    """What was compared, and with which figure; or what parts."""
    cause: str = ""
    """What values tell of why it parts; empty where nothing that is known makes both."""
    lines: tuple[str, ...] = ()
    """Further lines: what else parts, what was seen beside it."""
    multiple: float | None = None
    """Of the measured envelope, below float64."""


@dataclass(frozen=True)
class PortProof:
    """What was found of a trainer and its port."""

    trainers: tuple[str, str]
    stages: tuple[PortStage, ...]
    precision: str = "float64"
    """The narrowest type that was looked at."""
    steps: int = 50
    until: str = STAGES[-1]
    """The last stage that was asked for."""
    notes: tuple[str, ...] = ()
    rules: str = ""
    """The proven map as RULES.toml; empty where there is none."""
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    narrow: PortStage | None = None
    """What was found in a type narrower than float64: `inconclusive` where its envelope hides what float64 shows."""

    @property
    def verdict(self) -> Verdict:
        """Return `holds` where every stage that was asked for does, `broken` where one parts."""
        found = [one.verdict for one in self.stages]
        if self.narrow is not None:
            # what parts in float64 and is hidden here is not shown at this precision, and is not equal either
            found = [self.narrow.verdict, *(one for one in found if one != "broken")]
        return "broken" if "broken" in found else "inconclusive" if "inconclusive" in found else "holds"

    @property
    def parted(self) -> PortStage | None:
        """Return the stage that parts."""
        return next((one for one in (*self.stages, *self._narrow()) if one.verdict == "broken"), None)

    def _narrow(self) -> tuple[PortStage, ...]:
        return () if self.narrow is None else (self.narrow,)

    @property
    def cause(self) -> str:
        """Return the cause of what parts first; empty where nothing parts or none is known."""
        return self.parted.cause if self.parted else ""

    def text(self, most: int = 40) -> str:
        """Return the verdict, its cause, and a line for each stage, in at most so many lines."""
        names = f"{self.trainers[0]} and {self.trainers[1]}"
        held = [one.name for one in self.stages if one.verdict == "holds"]
        limit = "" if self.until == STAGES[-1] else f", as far as {self.until}"
        limit += "" if self.narrow is None else f", {self.narrow.name}"
        if self.verdict == "holds":
            lines = [f"the port holds{limit}: {names}"]
        elif self.verdict == "broken" and self.parted is not None:
            lines = [f"the port does not hold: {names} part at {self.parted.name}"]
        else:
            lines = [f"inconclusive{limit}: {names}"]
        if self.cause:
            lines.append(f"likely cause: {self.cause}")
            if re.search(r"\b(here|there)\b", self.cause):
                lines.append(f"  (here: {self.trainers[0]}, the trainer; there: {self.trainers[1]}, its port)")
        for one in (*self.stages, *self._narrow()):
            word = {"holds": "equal", "broken": "PARTS"}.get(one.verdict, "not seen")
            lines.append(f"  {one.name:<14} {word:<8} {one.said}")
            lines += [f"  {'':<14} {'':<8} {line}" for line in one.lines]
        last = STAGES.index(self.stages[-1].name) if self.stages else -1
        left = [name for name in STAGES[: STAGES.index(self.until) + 1] if STAGES.index(name) > last]
        if left and self.parted is not None:
            lines.append(f"  not looked at: {', '.join(left)}")
        if self.verdict == "inconclusive" and held:
            lines.append(f"what was seen is equal: {', '.join(held)}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)][:most])

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        stages = [dataclasses.asdict(one) for one in self.stages]
        return {
            "trainers": self.trainers, "verdict": self.verdict, "cause": self.cause,
            "parted": None if self.parted is None else self.parted.name, "precision": self.precision,
            "narrow": None if self.narrow is None else dataclasses.asdict(self.narrow),
            "steps": self.steps, "until": self.until, "stages": stages, "figures": dict(self.figures),
            "notes": self.notes, "rules": self.rules, "seconds": self.seconds,
        }  # fmt: skip
