"""Training processes of the resume check: start one, wait for its records, kill it; none outlives this process."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from parity.checks.running import tail_of
from parity.forks import kill_tree
from parity.storage import read_lines

__all__ = ["ProcessError", "StartProcess", "Started", "TrainingProcess", "end_all", "start_interpreter"]

POLL_SECONDS = 0.01

END_SECONDS = 1.0
"""Longest that killed processes are waited for when all are ended."""

_guard = threading.Lock()
_running: set[TrainingProcess] = set()
_ended = False
"""Whether all were ended: then none starts any more."""


class Started(Protocol):
    """A process that was started, as `subprocess.Popen` shows it."""

    pid: int

    def poll(self) -> int | None:
        """Return its exit code, None before its end."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code at its end, or raise `subprocess.TimeoutExpired`."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal to it, if it has not ended."""


StartProcess = Callable[[Sequence[str], BinaryIO, Mapping[str, str] | None], Started]
"""Starts a process, in a process group of its own: its command line, what takes all it prints, its environment."""


def start_interpreter(command: Sequence[str], out: BinaryIO, environment: Mapping[str, str] | None) -> Started:
    """Start a new interpreter, or any other program, in a process group of its own.

    Args:
        command: The command line.
        out: Takes what it prints, errors among it.
        environment: Its environment; None for that of this process.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        env=environment,
        process_group=0,  # a kill takes what it started along; Ctrl-C on a terminal reaches us alone
    )


class ProcessError(RuntimeError):
    """A training process ended, or hung, when it should not have.

    Attributes:
        tail: The last lines it printed.
    """

    def __init__(self, problem: str, tail: str) -> None:
        self.tail = tail
        super().__init__(f"{problem}; it printed last:\n{tail}")


class TrainingProcess:
    """One process of a run; it trains in a run directory, and ends or is killed."""

    def __init__(
        self,
        command: Sequence[str],
        run: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        start: StartProcess = start_interpreter,
    ) -> None:
        """Start it, in a process group of its own.

        Args:
            command: The command line.
            run: The run directory in which it trains.
            log: Takes what it prints.
            environment: Its environment; None for that of this process.
            start: Starts it.
        """
        self._steps, self._states, self._log = run / "steps.jsonl", run / "states.jsonl", log
        with log.open("ab") as out:
            self._require_more()
            self.process = start(command, out, environment)  # may wait for imports; `end_all` must not
        with _guard:
            _running.add(self)
        try:
            self._require_more()
        except ProcessError:  # all were ended meanwhile
            self.__exit__()
            raise

    @staticmethod
    def _require_more() -> None:
        with _guard:
            if _ended:
                raise ProcessError("not started: this process is about to end", "")

    def __enter__(self) -> TrainingProcess:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave no process running."""
        if self.process.poll() is None:
            self.kill()
        with _guard:
            _running.discard(self)

    def wait_for_step(self, step: int, attempt: int, timeout: float) -> None:
        """Return when a process start has written the record of a step.

        Raises:
            ProcessError: The process ended before, or took too long (it is killed then).
        """
        self._wait_for_row(self._steps, step, attempt, f"step {step}", timeout)

    def wait_for_start(self, attempt: int, timeout: float) -> None:
        """Return when a process start has its state, restored or new, before its first step.

        Raises:
            ProcessError: As of `wait_for_step`.
        """
        self._wait_for_row(self._states, 0, attempt, "the start", timeout)

    def _wait_for_row(self, file: Path, least: int, attempt: int, what: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        size = -1
        while time.monotonic() < deadline:
            now = file.stat().st_size if file.exists() else 0
            if now != size:
                size = now
                last = read_lines(file)[-1:]
                if any(row["step"] >= least and row["attempt"] == attempt for row in last):
                    return
            if (code := self.process.poll()) is not None:
                raise ProcessError(f"ended with {code} before {what}", tail_of(self._log))
            time.sleep(POLL_SECONDS)
        self.kill()
        raise ProcessError(f"no record of {what} within {timeout:g} s", tail_of(self._log))

    def stop(self, timeout: float) -> None:
        """Send SIGTERM, and return when it has saved and ended by that.

        Raises:
            ProcessError: It ended otherwise, or took too long (it is killed then).
        """
        self.process.send_signal(signal.SIGTERM)
        self.wait(timeout, 128 + signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to it and all that it started, and reap it."""
        self._send_kill()
        self.process.wait()

    def wait(self, timeout: float, expected: int = 0) -> None:
        """Return when it has ended with an exit code: by default without an error.

        Raises:
            ProcessError: It ended with another one, or took too long (it is killed then).
        """
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"still running after {timeout:g} s", tail_of(self._log)) from None
        if code != expected:
            raise ProcessError(f"ended with {code}", tail_of(self._log))

    def _send_kill(self) -> None:
        if self.process.poll() is None:
            kill_tree(self.process.pid, itself=False)  # it leads a group


def end_all() -> None:
    """Kill every training process and start none from now on: for a process that is about to end itself."""
    global _ended
    with _guard:
        _ended = True
        running = list(_running)
    for process in running:
        process._send_kill()
    deadline = time.monotonic() + END_SECONDS
    for process in running:  # its directory may be removed next
        with suppress(subprocess.TimeoutExpired):
            process.process.wait(max(0.0, deadline - time.monotonic()))
