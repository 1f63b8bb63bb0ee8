"""The progress display of `parity check`: one line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence

from parity.cli.streams import StreamLost
from parity.reference import Task, read_durations, write_durations

__all__ = ["CheckProgress"]

REDRAW_SECONDS = 0.2
"""Time between two looks at the progress, on a terminal."""

LINE_SECONDS = 15.0
"""Time between two lines, where there is no terminal."""


class CheckProgress:
    """A display of which check runs, its side, its steps, and the time left; on standard error.

    A context manager. The time left is known when the last run measured every check that remains.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._keys = [_key(task) for task in tasks]
        self._names = [_describe(task) for task in tasks]
        self._known = read_durations()
        self._measured: dict[str, float] = {}
        self._out, self._terminal = sys.stderr, sys.stderr.isatty()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._number, self._step = -1, ""
        self._began = time.monotonic()
        self._shown = 0
        self._lost: StreamLost | None = None
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> CheckProgress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._thread.join()
        write_durations(self._measured)

    def begin(self, number: int) -> None:
        """Show that a check begins, by its place in the list; counted from 0."""
        self._raise_loss()
        self._number, self._step, self._began = number, "", time.monotonic()

    def step(self, what: str, step: int, of: int) -> None:
        """Show a completed step of the check that runs."""
        self._raise_loss()
        self._step = f"{what} step {step} of {of}"

    def end(self, line: str) -> None:
        """Print the verdict of the check that ran, and remember how long it took."""
        self._raise_loss()
        if 0 <= self._number < len(self._keys):
            self._measured[self._keys[self._number]] = time.monotonic() - self._began
        with self._lock:
            self._clear()
            print(line, file=self._out, flush=True)

    def close(self) -> None:
        """Show nothing any more; any thread may call it, also while another is printing."""
        self._closed.set()
        if self._lock.acquire(timeout=1.0):
            try:
                self._clear()
            finally:
                self._lock.release()

    def left(self) -> float | None:
        """Return the seconds that the remaining checks took the last time; None where one of them is unknown."""
        remaining = self._keys[max(self._number, 0) :]
        if any(key not in self._known for key in remaining):
            return None
        elapsed = time.monotonic() - self._began
        current, rest = remaining[:1], remaining[1:]
        return sum(max(0.0, self._known[key] - elapsed) for key in current) + sum(self._known[key] for key in rest)

    def describe(self) -> list[str]:
        """Return the parts of the line, the most important first."""
        elapsed, left = time.monotonic() - self._began, self.left()
        parts = [f"check {self._number + 1} of {len(self._keys)}: {self._names[self._number]}"]
        parts += [self._step] if self._step else []
        parts += [f"about {left:.0f} s left"] if left is not None else []
        return [*parts, f"{elapsed:.0f} s so far"]

    def _run(self) -> None:
        while not self._closed.wait(REDRAW_SECONDS if self._terminal else LINE_SECONDS):
            if not 0 <= self._number < len(self._keys):
                continue
            try:
                with self._lock:
                    if not self._closed.is_set():
                        self._show(self.describe())
            except StreamLost as lost:  # raised again in the thread that runs the checks
                self._lost = lost
                return

    def _show(self, parts: list[str]) -> None:
        if not self._terminal:
            print(", ".join(parts), file=self._out, flush=True)
            return
        room = shutil.get_terminal_size().columns - 1
        while len(", ".join(parts)) > room and len(parts) > 1:
            parts.pop()
        line = ", ".join(parts) if len(parts[0]) <= room else parts[0].partition(":")[0]
        self._out.write(f"\r{line}{' ' * (self._shown - len(line))}")
        self._out.flush()
        self._shown = len(line)

    def _clear(self) -> None:
        """Remove the line that is shown; without escape codes, which NO_COLOR forbids."""
        if self._shown:
            self._out.write(f"\r{' ' * self._shown}\r")
            self._out.flush()
            self._shown = 0

    def _raise_loss(self) -> None:
        if self._lost is not None:
            raise self._lost


def _describe(task: Task) -> str:
    sides = (" > " if task.name.startswith("handover") else ", ").join(task.sides)
    return f"{task.name.partition(' ')[0]} {task.spec.name} {task.spec.precision} ({sides})"


def _key(task: Task) -> str:
    return f"{task.name} {task.spec.name} {task.spec.precision} {'-'.join(task.sides)} {task.spec.steps}"
