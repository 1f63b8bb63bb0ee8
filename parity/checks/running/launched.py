"""Ranks that a launcher starts, such as torchrun or mpirun: each finds its place as the launcher tells it.

The launcher is given a small program, which connects to the check and is told what to run; so its words, its
environment and what it does when a rank is gone are those of real training.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from parity.checks.running.child import run_child, tail_of
from parity.checks.running.inline import Train
from parity.checks.running.process import by_file, receive
from parity.checks.running.rank import HOST, MeetingPlace, Rank
from parity.checks.running.run import Request, Trace
from parity.errors import SpecError, TrainerError
from parity.forks import kill_tree

__all__ = ["COUNT", "Launcher", "attend", "checked_launcher", "main", "place_told"]

WHERE = "PARITY_RANKS"
"""Variable of the environment with the port and the key of the check that waits for the ranks."""
COUNT = "{processes}"
"""Stands in the words of a launcher for the number of processes."""
START_SECONDS = 180.0
"""Longest time from the launcher's start until every rank has connected."""
END_SECONDS = 15.0
"""Time that a launcher has to end when its ranks have."""
GRACE_SECONDS = 10.0
"""Time that ranks have to end by themselves when another one has: they mostly wait for it in a collective."""
PLACES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
          ("SLURM_PROCID", "SLURM_NTASKS"))  # fmt: skip
"""Variables of rank and count, those of torchrun first: a launcher of SLURM or MPI may start torchrun."""
_PROGRAM = "from parity.checks.running.launched import main\n\nmain()\n"


def checked_launcher(words: object, processes: int) -> tuple[str, ...]:
    """Return the words of a launcher.

    Args:
        words: What the caller gave.
        processes: Processes that train together.

    Raises:
        SpecError: They are no words, name no program, or one process alone is asked for.
    """
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise SpecError("launcher", f"must be a sequence of words, as of a command line, got {words!r}")
    if not words or not all(isinstance(word, str) and word for word in words):
        raise SpecError("launcher", f"must be words that are not empty, got {words!r}")
    if processes < 2:
        raise SpecError("launcher", f"starts several processes; give processes, at least 2, got {processes}")
    if shutil.which(words[0]) is None:
        raise SpecError("launcher", f"there is no program {words[0]!r} on the path; give it with its folder")
    return tuple(words)


def place_told(variables: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and count of this process, as its launcher tells them.

    Args:
        variables: Its environment.

    Raises:
        TrainerError: The launcher tells neither.

    Example:
        >>> place_told({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
        (1, 2)
    """
    for rank, count in PLACES:
        if variables.get(rank, "").isdigit() and variables.get(count, "").isdigit():
            return int(variables[rank]), int(variables[count])
    known = ", ".join(rank for rank, _ in PLACES)
    raise TrainerError(f"the launcher tells its processes no rank: none of {known} is set, each with its count")


class _LaunchedRank:
    """A process of this machine that a launcher started, for who ends it and waits for it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.exitcode = pid, None
        self.sentinel = os.pidfd_open(pid)
        self._killed = False

    def kill(self) -> None:
        """Kill it and what it started, if it is there: nothing is done any more."""
        if not select.select([self.sentinel], [], [], 0)[0]:
            kill_tree(self.pid)

    def end(self) -> None:
        """Kill it where it is to be killed, and wait for its end."""
        if not select.select([self.sentinel], [], [], 0)[0]:
            self._killed = True
            kill_tree(self.pid)
        select.select([self.sentinel], [], [], END_SECONDS)
        os.close(self.sentinel)

    def join(self) -> None:
        """Wait for its end."""
        select.select([self.sentinel], [], [])

    @property
    def was_killed(self) -> bool:
        """Tell whether it was the check that ended it."""
        return self._killed


class Launcher:
    """Runs the function once on each rank of a launcher.

    Args:
        words: The command to which the program is added; `{processes}` stands for the number of processes.
        train: The function; another process can import it.
        root: Directory for what launcher and ranks print.
        count: Number of ranks.
    """

    def __init__(self, words: Sequence[str], train: Train, root: Path, count: int) -> None:
        self._words = [word.replace(COUNT, str(count)) for word in words]
        self._train, self._root, self.count = by_file(train), root, count
        self._runs = 0
        self._live: list[subprocess.Popen[bytes]] = []
        self._stopped = False

    def stop(self) -> None:
        """Kill the runs that take place, and refuse others."""
        self._stopped = True
        for process in list(self._live):
            kill_tree(process.pid)

    def run(self, folder: Path, requests: Sequence[Request]) -> list[Trace]:
        """Run it once; what is asked of each rank, in their order, to the trace of each.

        Raises:
            TrainerError: The check was stopped, the launcher ended before its ranks connected, or they are others.
            MarkError: A mark cannot be used.
        """
        self._runs += 1
        program, log = self._root / "rank.py", self._root / f"launcher-{self._runs}.log"
        program.write_text(_PROGRAM)
        key = secrets.token_bytes(16)
        with ExitStack() as stack:
            listener = stack.enter_context(Listener((HOST, 0), backlog=self.count, authkey=key))
            place = stack.enter_context(MeetingPlace(self.count))
            variables = {**os.environ, WHERE: f"{listener.address[1]}:{key.hex()}",
                         "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # fmt: skip
            with log.open("wb") as printed:
                process = subprocess.Popen(
                    [*self._words, str(program)], env=variables, stdout=printed, stderr=printed,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
            self._live.append(process)
            stack.callback(self._end, process)
            ranks = self._connected(listener, process, log, stack)
            futures = []
            with ThreadPoolExecutor(self.count) as pool:
                for number, (here, started) in enumerate(ranks):
                    rank = Rank(number=number, count=self.count, ports=None, meeting=place.point)
                    home = self._root / f"rank-{number}"
                    home.mkdir(parents=True, exist_ok=True)
                    here.send((self._train, folder, requests[number], home, self._runs, rank))
                    futures.append(pool.submit(_follow, here, started, home / f"process-{self._runs}.log", log))
                attend(futures, lambda number, _: ranks[number][1].kill())
                traces = [future.result() for future in futures]
        if self._stopped:
            raise TrainerError("the check was stopped")
        for trace in traces:
            trace.folder = folder
        return traces

    def _connected(self, listener: Listener, process: subprocess.Popen[bytes], log: Path,
                   stack: ExitStack) -> list[tuple[Connection, _LaunchedRank]]:  # fmt: skip
        """Return the connection and the process of each rank, in their order."""
        found: dict[int, tuple[Connection, _LaunchedRank]] = {}
        waiting: Any = listener._listener._socket  # type: ignore[attr-defined]
        ends = time.monotonic() + START_SECONDS
        while len(found) < self.count:
            if process.poll() is not None or time.monotonic() > ends:
                missing = sorted({*range(self.count)} - found.keys())
                how = f"ended with {process.returncode}" if process.returncode is not None else "took too long"
                raise TrainerError(
                    f"the launcher {how} before all of {self.count} ranks had started; missing: {missing}:\n"
                    f"{tail_of(log)}"
                )
            if not select.select([waiting], [], [], 0.2)[0]:
                continue
            here: Connection = listener.accept()
            stack.callback(here.close)
            number, count, pid = here.recv()
            if count != self.count or number in found or number >= self.count:
                raise TrainerError(
                    f"the launcher started rank {number} of {count}, and {self.count} processes were asked for: "
                    f"write {COUNT} where it takes their number"
                )
            found[number] = here, _LaunchedRank(pid)
        return [found[number] for number in range(self.count)]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Let a launcher end by itself when its ranks are gone, and kill it if it does not."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        kill_tree(process.pid, itself=process.returncode is None)
        process.wait()
        self._live.remove(process)


def _follow(here: Connection, started: _LaunchedRank, log: Path, printed: Path) -> Trace:
    """Return what a rank shows until it has ended."""
    try:
        trace = receive(here, started, log, None)
    finally:
        started.end()
    if trace.end == "lost":
        if started.was_killed:
            trace.end = "killed"
        else:
            trace.error = f"its process ended:\n{tail_of(log if log.exists() else printed)}"
    return trace


def attend(futures: Sequence[Future[Trace]], end: Callable[[int, str], None]) -> None:
    """Wait for all ranks; when one has ended, the others have a while to do so, then they are ended.

    Args:
        futures: The run of each rank.
        end: Ends that of a rank, given the reason.
    """
    waiting, ends = set(futures), float("inf")
    while waiting:
        done, waiting = wait(waiting, 0.5, FIRST_COMPLETED)
        if done and ends == float("inf"):
            ends = time.monotonic() + GRACE_SECONDS
        if time.monotonic() > ends:
            for number, future in enumerate(futures):
                if future in waiting:
                    end(number, f"it did not end within {GRACE_SECONDS:g} s after another rank had ended")
            ends = float("inf")


def main() -> None:
    """Run what the check asks of this process: the program that a launcher is given."""
    port, _, key = os.environ.pop(WHERE).partition(":")
    number, count = place_told(os.environ)
    rows = Client((HOST, int(port)), authkey=bytes.fromhex(key))
    rows.send((number, count, os.getpid()))
    try:
        train, folder, request, home, run, rank = rows.recv()
    except EOFError:  # the check refused another rank, and is gone
        sys.exit(3)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_child(rows, train, folder, request, home, run, None, rank, parent=os.getppid())
