"""Runs of a training function in several processes that train together, as `torchrun` starts them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from parity.checks.running.inline import Train
from parity.checks.running.merged import merge_traces, of_rank
from parity.checks.running.process import ProcessRunner
from parity.checks.running.rank import Rank, free_ports
from parity.checks.running.request import Request
from parity.checks.running.trace import Trace

__all__ = ["RanksRunner"]

GRACE_SECONDS = 10.0
"""Time that ranks have to end by themselves when another one has: they mostly wait for it in a collective."""


class RanksRunner:
    """Runs the function in several processes at once, each in its place (`Rank`), with one folder for all.

    At every mark the ranks wait for each other, so that what each has saved is in the folder when it is looked at or
    copied, and a kill takes all of them at one mark.

    Args:
        train: The function; another process can import it.
        root: Directory for what the processes print.
        count: Number of ranks, at least 2.
    """

    mode = "process"
    parallel = 1

    def __init__(self, train: Train, root: Path, count: int) -> None:
        self._runners = [ProcessRunner(train, root / f"rank-{number}", fork=False) for number in range(count)]
        for number in range(count):
            (root / f"rank-{number}").mkdir(parents=True, exist_ok=True)
        self.ranks = count
        self._stack = ExitStack()

    def __enter__(self) -> RanksRunner:
        for runner in self._runners:
            self._stack.enter_context(runner)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Kill the runs that take place, and refuse others."""
        for runner in self._runners:
            runner.stop()

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it once on every rank.

        Raises:
            TrainerError: The check was stopped, or the ranks do not mark the same steps.
            MarkError: A mark cannot be used.
        """
        count = len(self._runners)
        meeting, ports = multiprocessing.get_context("spawn").Barrier(count), free_ports()
        ranks = [Rank(number=number, count=count, ports=ports, meeting=meeting) for number in range(count)]
        with ThreadPoolExecutor(count) as pool:
            futures = [
                pool.submit(runner.run, folder, _for_rank(request, rank.number), rank)
                for runner, rank in zip(self._runners, ranks, strict=True)
            ]
            try:
                self._attend(futures)
            except BaseException:  # an interrupt: the pool would wait for ranks that wait for each other
                self.stop()
                raise
            traces = [future.result() for future in futures]
        merged = merge_traces(traces)
        merged.folder = folder
        if request.kill_rank is not None and traces[request.kill_rank].end == "killed":
            merged.end = "killed"  # the others fail or wait for it
        return merged

    def _attend(self, futures: Sequence[Future[Trace]]) -> None:
        """Wait for all ranks; when one has ended, the others have a while to do so, then they are ended."""
        waiting, ends = set(futures), float("inf")
        while waiting:
            done, waiting = wait(waiting, 0.5, FIRST_COMPLETED)
            if done and ends == float("inf"):
                ends = time.monotonic() + GRACE_SECONDS
            if time.monotonic() > ends:
                for runner, future in zip(self._runners, futures, strict=True):
                    if future in waiting:
                        runner.end_runs(f"it did not end within {GRACE_SECONDS:g} s after another rank had ended")
                ends = float("inf")


def _for_rank(request: Request, rank: int) -> Request:
    """Return what is asked of one rank: the paths of it alone."""
    return replace(request, keep=_kept(request.keep, rank), keep_steps=_kept(request.keep_steps, rank))


def _kept(keep: Mapping[int, Sequence[str]], rank: int) -> dict[int, list[str]]:
    return {at: of_rank(paths, rank) for at, paths in keep.items()}
