"""Entry: one row of the catalogue of resume bugs, as it is planted in a real trainer and looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Entry", "Side", "Train"]

Train = Callable[..., Iterator[int]]
"""A trainer: `train(folder, *, fault="", **options)`, a generator of completed steps."""
Side = Literal["torch", "jax", "both"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One real defect, reported in a public tracker."""

    id: str
    """Its name on the page; two entries may share it where a defect has two forms."""
    source: str
    """The first report of it, `owner/repo#n`."""
    lost: str
    """What is lost, in one line."""
    side: Side = "both"
    """The frameworks whose trainers can have it; an entry of `jax` that has a trainer is planted by its meaning."""
    train: Train | None = None
    """The trainer it is planted in; None where it is not planted."""
    plant: str = ""
    """Switch of the trainer, its keyword `fault`; by default the id."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keywords of the trainer: the variant in which the defect can act; clean without the switch."""
    expected: tuple[str, ...] = ()
    """Components an expert would name; the first suspect must begin with one of them."""
    reveals: str = ""
    """What shows it first."""
    scenarios: tuple[str, ...] = ("kill",)
    """Scenarios in which it is found."""
    steps: int = 24
    stop_at: int = 17
    policy: bool = False
    """Whether it is a difference of policy, or a trap: the check must stay green."""
    ranks: bool = False
    """Whether it needs several ranks."""
    processes: int = 1
    """Processes that train together in its trainer."""
    why_not: str = ""
    """Why it is not planted in one process, beside ranks."""

    @property
    def name(self) -> str:
        """Return what tests call it."""
        return self.id if self.plant in ("", self.id) else f"{self.id}-{self.plant}"

    @property
    def keywords(self) -> dict[str, Any]:
        """Return the keywords that plant it."""
        return {**self.options, "fault": self.plant or self.id}
