"""What a process finds at its start and does at its end: `python -m tests.forks.probe DEED WORD...`."""

from __future__ import annotations

import atexit
import json
import os
import random
import signal
import sys
import threading
import time


def found() -> dict[str, object]:
    """Return what a process is given."""
    seen = {
        "argv": sys.argv[1:],
        "main": [sys.modules["__main__"].__spec__.name, os.path.basename(sys.argv[0])],
        "path": sys.path[:3],
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "parent": os.getppid(),
        "session": os.getsid(0) - os.getpid() if os.getsid(0) == os.getpid() else os.getsid(0),
        "group": os.getpgrp() - os.getpid() if os.getpgrp() == os.getpid() else os.getpgrp(),
        "descriptors": {number: _kind(number) for number in sorted(map(int, os.listdir("/proc/self/fd")))},
        "input": sys.stdin.read(),
        "streams": [_stream(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": threading.active_count(),
        "processors": sorted(os.sched_getaffinity(0)),
        "umask": os.umask(0),
        "same": [random.random(), hash("a word"), os.getpid()],
    }
    return seen


def _kind(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
    except OSError:  # what the listing itself had open
        return "gone"


def _stream(stream: object) -> list[object]:
    names = ("encoding", "errors", "line_buffering", "mode", "name", "write_through", "newlines")
    return [str(getattr(stream, name, None)) for name in names]


def main(deed: str, *words: str) -> None:
    """Do one thing."""
    if deed == "find":
        print(json.dumps(found()))
    elif deed == "exit":
        atexit.register(print, "at the end")
        print("not flushed", end=" ")
        sys.exit(int(words[0]))
    elif deed == "raise":
        raise KeyError("this was to be expected")
    elif deed == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    elif deed == "wait":
        print(os.getpid(), flush=True)
        time.sleep(60)
    elif deed == "thread":
        threading.Thread(target=lambda: (time.sleep(0.2), print("of a thread"))).start()
    elif deed == "pipe":
        sys.stdin.read()
        print("nobody reads this")


if __name__ == "__main__":
    main(*sys.argv[1:])
