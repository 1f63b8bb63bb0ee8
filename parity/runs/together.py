"""Several processes that train one run: process 0 decides and writes, the others follow, and all end together.

Usually there is one process; then nothing here does anything.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from parity.checkpoints import require_own, require_verified
from parity.checkpoints.remote import Carriers
from parity.contract import Place, Processes, RunIdentity, Trainer, written_of
from parity.environment import versions
from parity.errors import CheckpointError, DamagedError, ProcessesError, UnsealedError
from parity.runs.carriers import Others, follow_copies
from parity.runs.channel import connect, gather
from parity.runs.peers import Peers
from parity.runs.signals import Heard, Signals
from parity.runs.waiting import WatchedSignals

__all__ = ["Alone", "Together", "join"]

T = TypeVar("T")


class Alone:
    """A run of one process; a context manager."""

    first = True
    """Whether this process takes the lock, writes records and reports progress."""

    def __enter__(self) -> Alone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def signals(self, deadline: float) -> AbstractContextManager[Heard]:
        """Return what the loop hears while it is entered."""
        return Signals(deadline)

    def agree(self) -> None:
        """Have all processes hear, at the same step, the signals that any of them got."""

    def share(self, value: T) -> T:
        """Return the value of process 0 in every process; it must be JSON."""
        return value

    def restoring(self, trainer: Trainer, checkpoints: Path) -> Trainer:
        """Return a trainer whose `restore` restores in all processes.

        Args:
            trainer: That of this process.
            checkpoints: Directory of the run's checkpoints, whose bytes process 0 compares with their seals first.
        """
        del checkpoints
        return trainer

    def closing(self, trainer: Trainer) -> AbstractContextManager[object]:
        """Return a context at whose end a trainer is closed."""
        return closing(trainer)

    def carriers(self, trainer: Trainer, say: Callable[[str], None]) -> Carriers | None:
        """Return the processes that copy checkpoints together, for process 0; None for one alone.

        Args:
            trainer: That of this process.
            say: Takes one line for people, from any thread.
        """
        del trainer, say
        return None


class Together(Alone):
    """One of several processes of a run; a context manager."""

    def __init__(
        self,
        place: Place,
        facts: Mapping[str, str],
        identity: RunIdentity,
        start: Callable[[], None],
        processes: Processes,
        deadline: float,
    ) -> None:
        self.place, self.first = place, place.index == 0
        self._facts, self._identity = {**facts, **versions(), "spec": identity.text}, identity
        self._start, self._processes = start, processes
        self._live = WatchedSignals(deadline)
        self._agreed = Heard()

    def __enter__(self) -> Together:
        """Wait for the others, and have the side connect its framework.

        Raises:
            ProcessesError: Not all came, one was started differently, or a signal asks to stop.
        """
        self._live.__enter__()
        try:
            self._peers = self._meet()
        except BaseException:
            self._live.__exit__()
            raise
        try:
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the others: all have finished their work, or this one failed and reports it to them."""
        try:
            if error is not None:
                self._peers.fail(error)
                return
            self._peers.gather(None)
            self._processes.stop()
            self._peers.part()
        finally:
            self._live.__exit__()

    def signals(self, deadline: float) -> AbstractContextManager[Heard]:
        """Return what all processes have heard, as of the last `agree`; the deadline is that of the start."""
        del deadline
        return nullcontext(self._agreed)

    def agree(self) -> None:
        """Have all processes hear, at the same step, the signals that any of them got."""
        if save := self._live.save:
            self._live.save = False
        heard = self._peers.gather([self._live.stop, save])
        self._agreed.save |= any(save for _, save in heard)
        if self._agreed.stop is None:
            self._agreed.stop = next((stop for stop, _ in heard if stop is not None), None)

    def share(self, value: T) -> T:
        """Return the value of process 0 in every process; it must be JSON."""
        shared: T = self._peers.gather(value)[0]
        return shared

    def restoring(self, trainer: Trainer, checkpoints: Path) -> Trainer:
        """Return a trainer for process 0 whose `restore` restores in all processes."""
        restoring: Any = _Restoring(trainer, checkpoints, self)
        return restoring

    def carriers(self, trainer: Trainer, say: Callable[[str], None]) -> Carriers | None:
        """Return the processes that copy checkpoints together, for process 0."""
        return Others(self._peers, self.place, partial(written_of, trainer), say)

    def help_copying(self, trainer: Trainer, checkpoints: Path) -> None:
        """Begin to send, in another process, what process 0 asks for of the checkpoints that are copied."""
        follow_copies(self._peers, checkpoints, partial(written_of, trainer))

    def follow(self, trainer: Trainer) -> int | None:
        """Restore, in another process, what process 0 restores; return the step that the run begins from."""
        while "restore" in (order := self.share(dict[str, Any]())):
            trainer.restore(order["restore"])
            self.share(None)
        start: int | None = order["start"]
        return start

    @contextmanager
    def closing(self, trainer: Trainer) -> Iterator[None]:
        """Return a context at whose end a trainer is closed, unless an error is passing through.

        After a failure, closing would wait for a save under way, which waits for the other processes.
        """
        try:
            yield
        except BaseException as error:
            self._peers.fail(error)
            raise
        trainer.close()

    def _meet(self) -> Peers:
        hello = {"pid": os.getpid(), "host": socket.gethostname(), "facts": self._facts}
        if self.first:
            hellos, connections = gather(self.place, hello, self._stopped)
        else:
            hellos, connection = connect(self.place, hello, self._stopped)
            connections = {0: connection}
        self._require_same([hello["facts"] for hello in hellos])
        return Peers(self.place, hellos, connections)

    def _require_same(self, facts: list[dict[str, str]]) -> None:
        """Raise ProcessesError if a process was started differently from process 0; each process finds the same."""
        ours = facts[0]
        for index, theirs in enumerate(facts):
            if theirs == ours:
                continue
            parse = self._identity.parse
            found = _unequal(parse(theirs["spec"]), parse(ours["spec"])) or _unequal(theirs, ours)
            text = ", ".join(f"{name} is {a} there and {b} in process 0" for name, (a, b) in list(found.items())[:5])
            raise ProcessesError(
                f"process {index} of {len(facts)} was started differently: {text}; start all with the same arguments"
            )

    def _stopped(self) -> None:
        if (number := self._live.stop) is not None:
            problem = f"stopped before all {self.place.count} processes were there; nothing was trained"
            raise ProcessesError(f"{signal.Signals(number).name}: {problem}", 128 + number)


def join(
    processes: Processes | None,
    facts: Callable[[], Mapping[str, str]],
    identity: RunIdentity,
    described: Any,
    deadline: float,
) -> Alone | Together:
    """Return the processes of this run, to be entered: those that the environment names, or only this one.

    Args:
        processes: What the side knows of several processes; None if it trains in one only.
        facts: Returns what all processes must have been started with, name to value; called where there are several.
        identity: The run, the same in all.
        described: The run, as the side understands it.
        deadline: Seconds that a process may take to save after a signal to stop.

    Raises:
        SpecError: The environment names the place of this process only in part.
    """
    place = processes.place() if processes is not None else None
    if processes is None or place is None:
        return Alone()
    return Together(place, facts(), identity, partial(processes.start, place, described), processes, deadline)


class _Restoring:
    """What process 0 uses as its trainer while a run is resumed.

    The bytes of a checkpoint are compared with its seal once more, and first: a process that found it damaged while
    another restores it would leave that one waiting.
    """

    def __init__(self, trainer: Trainer, checkpoints: Path, together: Together) -> None:
        self.plan = trainer.plan
        self._trainer, self._checkpoints, self._together = trainer, checkpoints, together

    def restore(self, step: int) -> int:
        """Restore in all processes.

        Raises:
            DamagedError: The checkpoint is not what was sealed; no process has begun to restore it.
            CheckpointError: It cannot be restored.
        """
        with suppress(UnsealedError):
            require_own(require_verified(self._checkpoints / str(step)), self._trainer.spec_hash)
        self._together.share({"restore": step})
        try:
            self._trainer.restore(step)
        except DamagedError as error:  # no older one is tried: the others may have restored this one
            raise CheckpointError(str(error)) from error
        self._together.share(None)  # all have read it: what is newer may be moved
        return step


def _unequal(theirs: Mapping[str, object], ours: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    names = sorted({*theirs, *ours})
    return {name: (theirs.get(name), ours.get(name)) for name in names if theirs.get(name) != ours.get(name)}
