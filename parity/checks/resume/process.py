"""Training processes of the resume check: start one, wait for its records, kill it; none outlives this process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from parity.storage import read_lines

__all__ = ["ProcessError", "TrainingProcess", "end_all"]

POLL_SECONDS = 0.01

END_SECONDS = 1.0
"""Longest that killed processes are waited for when all are ended."""

_guard = threading.Lock()
_running: set[TrainingProcess] = set()
_ended = False
"""Whether all were ended: then none starts any more."""


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
        self, command: Sequence[str], run: Path, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it, in a process group of its own.

        Args:
            command: The command line.
            run: The run directory in which it trains.
            log: Takes what it prints.
            environment: Its environment; None for that of this process.
        """
        self._steps, self._log = run / "steps.jsonl", log
        with log.open("ab") as out, _guard:
            if _ended:
                raise ProcessError("not started: this process is about to end", "")
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                process_group=0,  # a kill takes what it started along; Ctrl-C on a terminal reaches us alone
            )
            _running.add(self)

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
        deadline = time.monotonic() + timeout
        size = -1
        while time.monotonic() < deadline:
            now = self._steps.stat().st_size if self._steps.exists() else 0
            if now != size:
                size = now
                last = read_lines(self._steps)[-1:]
                if any(row["step"] >= step and row["attempt"] == attempt for row in last):
                    return
            if self.process.poll() is not None:
                raise ProcessError(f"ended with {self.process.returncode} before step {step}", self._tail())
            time.sleep(POLL_SECONDS)
        self.kill()
        raise ProcessError(f"no record of step {step} within {timeout:g} s", self._tail())

    def kill(self) -> None:
        """Send SIGKILL to it and all that it started, and reap it."""
        self._send_kill()
        self.process.wait()

    def wait(self, timeout: float) -> None:
        """Return when it has ended without an error.

        Raises:
            ProcessError: It ended with an error, or took too long (it is killed then).
        """
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"still running after {timeout:g} s", self._tail()) from None
        if code != 0:
            raise ProcessError(f"ended with {code}", self._tail())

    def _send_kill(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):  # it ended just now, and another thread reaped it
                os.killpg(self.process.pid, signal.SIGKILL)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-12:])


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
