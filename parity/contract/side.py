"""A side: what builds trainers of one kind, and what the harness must know to start their processes.

Any object with `build` and `topology` is one: a module, an instance of a class. The other members are optional.

| optional member | what it is |
|---|---|
| `processes` | a `Processes`: several processes train one run |
| `drafts` | patterns of what a save that is cut short leaves in `checkpoints/`; see `CheckpointStore` |
| `environment` | variables of a process that a check starts: name to value, None for one that is removed |
| `export_params(checkpoint, dest)` | writes the parameters of a verified checkpoint to a new place, for inference |
| `writers()` | the formats that it writes, as `parity.formats.Writer`; for `parity convert` |
| `explain_sharding(described)` | a `StateSplit`: along which axes of the mesh each leaf is split |
| `prepare_process()` | called once in a process that trains, before anything is built |
| `shared_programs(directory)` | a context in which this process and its children share compiled programs |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from parity.contract.place import Place
from parity.contract.trainer import Trainer

__all__ = [
    "Processes",
    "Side",
    "child_environment",
    "devices_started",
    "drafts_of",
    "prepare_process",
    "processes_needed",
    "processes_of",
    "shared_programs",
]


class Side(Protocol):
    """What the harness is given of a side; `described` is a run as the side understands it."""

    def build(self, described: Any, /, directory: Path | None = None, *, attempt: int = 0) -> Trainer:
        """Build a trainer at step 0.

        Args:
            described: The run.
            directory: The run directory, where it saves; None for a trainer that never does.
            attempt: Process starts of the run before this one.
        """

    def topology(self, described: Any, /) -> dict[str, Any]:
        """Return what bitwise equality depends on beside the run itself: devices, threads; as JSON values."""


class Processes(Protocol):
    """What a side that trains in several processes has as `processes`; one that has none trains in one.

    A side whose processes cannot have any number of devices has `needed(described)` too: how many a run needs; and
    `started()`, how many devices the processes that were started bring together, where that can be said before.
    """

    def place(self) -> Place | None:
        """Return the place of this process, which its launcher put into the environment; None if it is alone.

        Raises:
            SpecError: The environment names it only in part.
        """

    def start(self, place: Place, described: Any, /) -> None:
        """Connect the framework's processes, which are all there; called before the side builds anything.

        Args:
            place: Address, index and number of the processes.
            described: The run.
        """

    def stop(self) -> None:
        """Disconnect them; called by all, when every trainer is closed."""


def processes_of(side: Side) -> Processes | None:
    """Return what a side knows of several processes, if it does."""
    found: Processes | None = getattr(side, "processes", None)
    return found


def processes_needed(side: Side, described: Any) -> int:
    """Return how many processes a side needs for a run; 1 where it does not say."""
    found: Callable[[Any], int] = getattr(processes_of(side), "needed", lambda described: 1)
    return found(described)


def devices_started(side: Side) -> int | None:
    """Return how many devices the processes that a launcher started bring; None where a side does not say.

    Raises:
        SpecError: The environment names the place of this process only in part.
    """
    found: Callable[[], int] | None = getattr(processes_of(side), "started", None)
    return None if found is None else found()


def drafts_of(side: Side) -> Sequence[str]:
    """Return the patterns of what a side leaves of a save that is cut short."""
    found: Sequence[str] = getattr(side, "drafts", ())
    return found


def prepare_process(side: Side) -> None:
    """Have a side prepare this process for training, if it asks for that."""
    getattr(side, "prepare_process", lambda: None)()


def child_environment(side: Side) -> dict[str, str]:
    """Return the environment of a process that trains one run alone, beside others on this machine.

    The variables by which a launcher names the place of a process do not go to it: it would wait for the others.
    """
    found: Mapping[str, str | None] = getattr(side, "environment", {})
    return {name: value for name, value in ({**os.environ, **found}).items() if value is not None}


def shared_programs(side: Side, directory: Path) -> AbstractContextManager[None]:
    """Return the context in which the processes of a check share what a side compiles, in a directory, if it does.

    Args:
        side: The side; one without `shared_programs` shares nothing.
        directory: Where compiled programs are kept.
    """
    found: AbstractContextManager[None] = getattr(side, "shared_programs", lambda directory: nullcontext())(directory)
    return found
