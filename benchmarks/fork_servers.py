"""Seconds until a process that has PyTorch answers: a fork by `parity.forks`, one by the standard library, a new one.

`python -m benchmarks.fork_servers [--runs N]`; the figures are in docs/decisions.md.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from parity.forks import ForkServer, serve

MODULES = ["torch", "parity", "torch_side"]


def answer(out: Connection) -> None:
    """Say that this process has what it needs."""
    for name in MODULES:
        importlib.import_module(name)
    out.send("ready")


class Job:
    """What the server of `parity.forks` imports and runs."""

    def prepare(self, requests: Connection) -> bool:
        """Import what the first request names."""
        for name in requests.recv():
            importlib.import_module(name)
        return True

    def load(self, what: Any) -> bool:
        """Import nothing later."""
        return True

    def run(self, descriptor: int, given: Sequence[Any]) -> None:
        """Answer."""
        answer(Connection(descriptor, readable=False))


def start(requests: Connection) -> BaseProcess:
    """Start the server of `parity.forks`."""
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(requests, os.getpid(), Job()))
    process.start()
    return process


def seconds(begin: Callable[[Connection], Any], runs: int) -> tuple[float, float]:
    """Return the seconds of the first process, and the median of those after it."""
    took = []
    for _ in range(1 + runs):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        began = time.perf_counter()
        process = begin(theirs)
        theirs.close()
        ours.recv()
        took.append(time.perf_counter() - began)
        process.join()
    return took[0], statistics.median(took[1:])


def main() -> None:
    """Measure all three, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs

    def by(method: str) -> Callable[[Connection], BaseProcess]:
        context: Any = multiprocessing.get_context(method)

        def begin(out: Connection) -> BaseProcess:
            process: BaseProcess = context.Process(target=answer, args=(out,))
            process.start()
            return process

        return begin

    multiprocessing.set_forkserver_preload(MODULES)
    with ForkServer(start, MODULES) as server:
        rows = {
            "parity.forks": seconds(lambda out: server.fork(out.fileno()), runs),
            "multiprocessing's fork server": seconds(by("forkserver"), runs),
            "a new interpreter": seconds(by("spawn"), min(runs, 3)),
        }
    for name, (first, later) in rows.items():
        print(f"{name:32} first {first:6.2f} s   then {later:.3f} s")


if __name__ == "__main__":
    main()
