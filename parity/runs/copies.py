"""Copies of a run's checkpoints at an object store, sent in the background while it trains.

The loop only wakes the thread that sends; it never waits for it but at its end. A store that is gone is tried again,
and what was saved meanwhile is sent then. A lease that is lost ends the sending for good.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from parity import policy
from parity.checkpoints import Scan, identities
from parity.checkpoints.remote import RECORDS, Carriers, Lease, clean, drop, give_up_after, note_metrics, send
from parity.contract import RunPlan
from parity.errors import DamagedError, OtherRunError, ParityError, RunDirectoryError
from parity.policy import Saved
from parity.runs.directory import RunDirectory
from parity.storage import reason

__all__ = ["CarriersOf", "NoCopies", "RunCopies"]

CarriersOf = Callable[[Callable[[str], None]], Carriers | None]

POLL_SECONDS = 1.0
"""How often the thread looks for a save that ended since; the loop learns of it only at the next one."""
LONGEST_PAUSE = 30.0
"""Longest time between two tries while the store is gone."""
PATIENCE_SECONDS = 60.0
"""How long the end of a run waits for a store that does not answer; each success begins it anew."""


class NoCopies:
    """What a run does about a store where it has none: nothing."""

    def wake(self) -> None:
        """Look for a new checkpoint."""

    def lines(self) -> list[str]:
        """Return what happened since, for people."""
        return []

    def require(self) -> None:
        """Check that this process may still write.

        Raises:
            ParityError: Another process has taken the prefix, or it holds something else.
        """

    def finish(self) -> str | None:
        """Send what is left; return what could not be sent, as a sentence."""
        return None

    def close(self) -> None:
        """End the thread."""


class RunCopies(NoCopies):
    """The copies of one run below one prefix.

    Args:
        run: The run; its lock is held.
        plan: Which checkpoints stay, there as here.
        take: Takes the lease, or returns it where it is taken; asked until the store answers.
        start: The step that this process continued from; copies of later steps are given up. None for the beginning.
        carriers: Returns the processes of the run that send together; given what takes a line for people.
    """

    def __init__(
        self,
        run: RunDirectory,
        plan: RunPlan,
        take: Callable[[], Lease],
        start: int | None,
        carriers: CarriersOf = lambda say: None,
    ) -> None:
        self._run, self._plan, self._take, self._start = run, plan, take, start
        self._carriers = carriers(self._say)
        self._lost: ParityError | None = None
        """Why this process may not write; for good."""
        self._wake, self._ending = threading.Event(), threading.Event()
        self._lines: list[str] = []
        self._guard = threading.Lock()
        self._cleaned = False
        self._behind = False
        """Whether the last try failed, which was said."""
        self._refused: dict[tuple[int, float], str] = {}
        """What of the local checkpoints is not sent, and why."""
        self._seen: object = None
        self._idle = threading.Event()
        """Set while everything that is here is there."""
        self._progress = time.monotonic()
        self._failure = ""
        self._thread = threading.Thread(target=self._work, name="copies", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for a new checkpoint."""
        self._wake.set()

    def lines(self) -> list[str]:
        """Return what happened since the last call, for people."""
        with self._guard:
            found, self._lines = self._lines, []
        return found

    def require(self) -> None:
        """Check that this process may still write.

        Raises:
            ParityError: Another process has taken the prefix, or it holds something else.
        """
        if self._lost is not None:
            raise self._lost

    def finish(self) -> str | None:
        """Send what is left; return what could not be sent, as a sentence.

        Waits as long as something arrives at the store, and `PATIENCE_SECONDS` for one that does not answer.
        """
        self._progress = time.monotonic()
        self._idle.clear()
        self._seen = None
        self._wake.set()
        while self._thread.is_alive() and not self._idle.wait(0.05):
            if self._behind and time.monotonic() - self._progress > PATIENCE_SECONDS:
                break
        if self._lost is not None:
            return str(self._lost)
        if not self._idle.is_set():
            return f"checkpoints are not copied: {self._failure}; the next start of the run copies them"
        return "; ".join(self._refused.values()) or None

    def close(self) -> None:
        """End the thread, which ends what it sends first: a removal that was begun is better done."""
        self._ending.set()
        self._wake.set()
        self._thread.join(PATIENCE_SECONDS)

    def _say(self, line: str) -> None:
        with self._guard:
            self._lines.append(line)

    def _work(self) -> None:
        pause = POLL_SECONDS
        while not self._ending.is_set():
            try:
                lease = self._take()
                self._round(lease)
                pause = POLL_SECONDS
                if self._behind:
                    self._behind = False
                    self._say(f"{lease.store.url}: the store answers again, and has every checkpoint that is kept")
            except RunDirectoryError as error:  # another process has the lease, or the prefix holds something else
                self._lost = error
                self._say(str(error))
                return
            except Exception as error:
                self._note_failure(error)
                pause = min(LONGEST_PAUSE, pause * 2)
            self._wake.wait(pause)
            self._wake.clear()

    def _note_failure(self, error: Exception) -> None:
        """Say that copies have to wait, once for each time that they fall behind."""
        self._failure = reason(error)
        self._seen = None
        if not self._behind:
            self._behind = True
            self._say(f"{self._failure}; training continues, and checkpoints are copied later")

    def _round(self, lease: Lease) -> None:
        """Send what is here and not there, the newest first, and remove there what the policy does not keep."""
        url = lease.store.url
        if not self._cleaned:
            if later := give_up_after(lease, self._start):
                named = ", ".join(map(str, later))
                self._say(f"{url}: given up: {named}, later than the step that was resumed from")
            clean(lease)
            self._cleaned = True
        now = identities(self._run.checkpoints)
        if now == self._seen:
            self._idle.set()
            return
        scan = self._run.store.scan()
        for saved in self._missing(lease, scan):
            self._send(lease, saved)
        note_metrics(lease, {(saved.step, saved.saved_at): saved.metric for saved in scan.whole})
        rows = lease.head.checkpoints
        kept = policy.kept([row.saved for row in rows.values()], self._plan.keep)
        drop(lease, [step for step in rows if step not in kept])
        self._seen = now
        if identities(self._run.checkpoints) == now:
            self._idle.set()

    def _missing(self, lease: Lease, scan: Scan) -> list[Saved]:
        """Return the checkpoints that are here, that the policy keeps, and that are not there, the newest first."""
        rows = lease.head.checkpoints
        here = {saved.step: saved for saved in scan.whole}
        every = {**{step: row.saved for step, row in rows.items()}, **here}
        kept = policy.kept(list(every.values()), self._plan.keep)
        return [
            here[step]
            for step in sorted(here, reverse=True)
            if step in kept
            and (step not in rows or rows[step].saved_at != here[step].saved_at)
            and (step, here[step].saved_at) not in self._refused
        ]

    def _send(self, lease: Lease, saved: Saved) -> None:
        path = self._run.checkpoints / str(saved.step)
        with tempfile.TemporaryDirectory(prefix=".copies-", dir=self._run.path) as folder:
            try:
                send(lease, path, saved.metric, copy_records(self._run, Path(folder)), self._carriers)
            except (DamagedError, OtherRunError) as error:
                if path.is_dir():  # else the policy removed it meanwhile
                    self._refused[saved.step, saved.saved_at or 0.0] = str(error)
                    self._say(f"step {saved.step} is not copied to {lease.store.url}: {error}")
                return
            except FileNotFoundError:
                if path.is_dir():
                    raise
                return
        self._progress = time.monotonic()
        self._say(f"copied step {saved.step} to {lease.store.url}")


def copy_records(run: RunDirectory, folder: Path) -> Mapping[str, Path]:
    """Copy the records of a run as they stand; the last line of each is whole.

    Args:
        run: The run, which may be appending to them.
        folder: An empty directory.

    Returns:
        Name to the copy.
    """
    found = {}
    for name in RECORDS:
        source = run.path / name
        if not source.exists():
            continue
        target = folder / name
        shutil.copyfile(source, target)
        if name.endswith(".jsonl"):
            _cut_last_line(target)
        found[name] = target
    return found


def _cut_last_line(path: Path) -> None:
    """Remove what stands behind the last end of a line: an append is under way."""
    with path.open("r+b") as file:
        end = file.seek(0, 2)
        while end:
            start = max(0, end - 4096)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        file.truncate(end)
