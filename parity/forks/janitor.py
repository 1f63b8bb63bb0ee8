"""The janitor of a check: a small process that outlives it, ends what it left running, and removes its folders.

A check that is killed unwinds nothing. The janitor waits for its end, whatever ended it, and is itself ended by a
check that cleans up. It is this file, run by a bare interpreter (0.02 s), so the module imports next to nothing.
Processes are known by a variable of the environment with which they were started: also those that made a session of
their own, whose parent has ended, or that were forked without an interpreter of their own.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Janitor", "descendants", "end_marked", "kill_tree", "marking"]

VARIABLE = "PARITY_CHECK"
"""Variable of the environment with the tokens of the checks, one within the other, to which a process belongs."""

POLL_SECONDS = 0.2
"""Time between two looks at the parent: forked workers of a loop may hold the pipe that shows its end."""

ATTEMPTS = 40
"""How often processes are looked for, and a folder is removed, while some are still ending."""


class Janitor:
    """The process that waits for the end of this one; a context manager, at whose exit there is nothing left to do.

    Args:
        token: Ends the processes that were started with it (`marking`); empty for none.
        folder: Is removed; empty for none.
    """

    def __init__(self, token: str = "", folder: str = "") -> None:
        self._given = (token, folder)

    def __enter__(self) -> Janitor:
        import subprocess  # 10 ms that the process itself does not need

        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no room for one more process: the next check removes folders too
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid()), *self._given],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                cwd="/",
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


@contextmanager
def marking(token: str) -> Iterator[None]:
    """Start processes with a token: they, and all that they start, can be found by it.

    One thread at a time; other code that starts a process meanwhile has it marked too, so this is left at once.
    """
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = token if before is None else f"{before},{token}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def end_marked(token: str) -> None:
    """Kill every process that was started with a token, but this one; on Linux alone."""
    for _ in range(ATTEMPTS):
        found = [pid for pid in _numbers("/proc") if pid != os.getpid() and _has(pid, token)]
        for pid in found:
            _kill(pid)
        if not found:
            return
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, whatever their sessions and groups; on Linux alone."""
    found: list[int] = []
    for task in _numbers(f"/proc/{pid}/task"):
        with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as children:
            for child in map(int, children.read().split()):
                found += [child, *descendants(child)]
    return found


def kill_tree(pid: int, *, itself: bool = True) -> None:
    """Send SIGKILL to the group that a process leads, and to what below it has a group of its own.

    Args:
        pid: The process; whoever waits for it has not done so yet, so that its number is no other's.
        itself: Whether it has not ended, and is killed too where it leads no group.
    """
    below = descendants(pid)  # before the kill: children of a dead process have another parent
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for one in (*below, *([pid] if itself else [])):
        _kill(one)


def _numbers(folder: str) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    return []


def _has(pid: int, token: str) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:
        mine = [one for one in environment.read().split(b"\0") if one.startswith(f"{VARIABLE}=".encode())]
        return any(token.encode() in one for one in mine)
    return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _wait_and_clean(parent: int, token: str, folder: str) -> None:
    while os.getppid() == parent and not select.select([0], [], [], POLL_SECONDS)[0]:
        pass
    if token:
        end_marked(token)
    for _ in range(ATTEMPTS):
        if not folder or not os.path.lexists(folder):
            return
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)


if __name__ == "__main__":
    _wait_and_clean(int(sys.argv[1]), *sys.argv[2:])
