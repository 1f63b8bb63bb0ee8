"""Request: how far one run of a training function goes, where it is killed, and what is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.checks.running.entry import LoopEntry
from parity.checks.running.nudge import Nudge

__all__ = ["Request"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one run of the function is for."""

    steps: int
    """Last step of the run; the state after it is captured as well."""
    reference: bool = False
    """Whether the others are compared with this run, and none resumes from what it saves."""
    kill: int | None = None
    """Mark, counted from 0, at which the run is killed."""
    kill_step: int | None = None
    """Completed steps at or after which the run is killed, for a run that does not begin at step 0."""
    kill_rank: int | None = None
    """The one rank that is killed then, of several that train together; None kills all of them."""
    rest: int | None = None
    """Completed steps at which threads that save may come to an end first, as they may at a copy or a kill."""
    copies: Mapping[int, Path] = field(default_factory=dict)
    """Mark to a directory that takes a copy of the folder, as a kill at that mark would leave it."""
    keep: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Mark to the paths whose values are wanted; -1 is the final state."""
    keep_steps: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Completed steps to the paths whose values are wanted, wherever the run begins; -1 is the final state."""
    put_back: bool = False
    """Whether the generators that all code shares are put back after declared regions."""
    watch: bool = False
    """Whether the state before and after statements that save or evaluate is compared."""
    loads: frozenset[str] = frozenset()
    """Names of which is noted whether the trainer takes or writes them first in a step."""
    writes: Sequence[tuple[str, int]] = ()
    """Files and lines that write to the folder, from an earlier run: statements to watch."""
    nudge: Nudge | None = None
    """How the parameters are moved at the first mark; None to leave them."""
    entry: LoopEntry | None = None
    """Where the first step begins, if the state there is wanted."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function, besides the folder."""
