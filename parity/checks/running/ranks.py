"""Several processes that train together: started and killed as one, with one trace of all of them.

The trace has the state of all ranks at each mark, with the rank before every path.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from parity.capture import Leaf, StateSnapshot
from parity.checks.running.inline import Train
from parity.checks.running.process import ProcessRunner
from parity.checks.running.rank import Rank, free_ports
from parity.checks.running.run import Effect, End, Mark, Request, Trace
from parity.errors import TrainerError

__all__ = ["RanksRunner", "merge_traces", "of_rank"]

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


T = TypeVar("T")


def prefix(rank: int) -> str:
    """Return what paths of a rank begin with: as the name of a module, which says nothing of a purpose."""
    return f"rank{rank}:"


def of_rank(paths: Sequence[str], rank: int) -> list[str]:
    """Return the paths of one rank, as they are called there.

    Example:
        >>> of_rank(["rank0:model.bias", "rank1:step"], 1)
        ['step']
    """
    return [path.removeprefix(prefix(rank)) for path in paths if path.startswith(prefix(rank))]


def merge_traces(traces: Sequence[Trace]) -> Trace:
    """Return one trace of all ranks.

    What is of the folder (files, reads) is of rank 0, which looks at it when all ranks have come to the mark.

    Args:
        traces: Of each rank, in their order.

    Raises:
        TrainerError: The ranks do not mark the same steps.
    """
    first = traces[0]
    count = min(len(trace.marks) for trace in traces)
    for number, trace in enumerate(traces):
        if trace.steps[:count] != first.steps[:count] or (
            trace.end == first.end == "finished" and len(trace.marks) != len(first.marks)
        ):
            raise TrainerError(
                f"rank 0 marks the steps {_shown(first.steps)} and rank {number} {_shown(trace.steps)}: every rank "
                "has to mark every step, the same ones"
            )
    merged = replace(first, end=_end_of(traces), error=_error_of(traces))
    merged.marks = [
        Mark(mark.step, _joined([trace.marks[at].snapshot for trace in traces]), mark.saved, mark.gone, mark.read)
        for at, mark in enumerate(first.marks[:count])
    ]
    finals, entries = ([getattr(trace, name) for trace in traces] for name in ("final", "entry"))
    merged.final = _joined(finals) if all(one is not None for one in finals) else None
    merged.entry = _joined(entries) if all(one is not None for one in entries) else None
    merged.effects = [_effect(one, at) for at, trace in enumerate(traces) for one in trace.effects]
    merged.nudged = [prefix(at) + path for at, trace in enumerate(traces) for path in trace.nudged]
    merged.returned = _of_all([trace.returned for trace in traces])
    merged.printed = _of_all([trace.printed for trace in traces])
    for name in ("names", "reads", "restored", "executed", "loads", "decisions", "renamed"):
        setattr(merged, name, set().union(*(getattr(trace, name) for trace in traces)))
    merged.writes = list(dict.fromkeys(one for trace in traces for one in trace.writes))
    merged.frameworks = tuple(dict.fromkeys(one for trace in traces for one in trace.frameworks))
    return merged


def _end_of(traces: Sequence[Trace]) -> End:
    ends = [trace.end for trace in traces]
    worst: tuple[End, ...] = ("failed", "lost", "late", "killed")
    return next((end for end in worst if end in ends), "finished")


def _error_of(traces: Sequence[Trace]) -> str:
    """Return the error of the rank that failed by itself; the others mostly fail since it is gone."""
    ends = _end_of(traces)
    found = [f"rank {at}: {trace.error}" for at, trace in enumerate(traces) if trace.end == ends and trace.error]
    return found[0] if found else ""


def _joined(snapshots: Sequence[StateSnapshot]) -> StateSnapshot:
    return StateSnapshot(
        leaves=_of_all([one.leaves for one in snapshots]),
        dead=frozenset(prefix(at) + name for at, one in enumerate(snapshots) for name in one.dead),
        unseen=_named([one.unseen for one in snapshots]),
        values=_named([one.values for one in snapshots]),
        not_finite=_named([one.not_finite for one in snapshots]),
        losses=_named([one.losses for one in snapshots]),
        probes=_named([one.probes for one in snapshots]),
    )


def _named(found: Sequence[Mapping[str, T]]) -> dict[str, T]:
    return {prefix(at) + path: value for at, one in enumerate(found) for path, value in one.items()}


def _of_all(leaves: Sequence[Mapping[str, Leaf]]) -> dict[str, Leaf]:
    return {prefix(at) + path: _leaf(path, leaf, at) for at, one in enumerate(leaves) for path, leaf in one.items()}


def _leaf(path: str, leaf: Leaf, rank: int) -> Leaf:
    """Return a leaf as one of a rank: an alias gives the other path, a component without a word its own."""
    if leaf.role == "alias":
        leaf = replace(leaf, digest=prefix(rank) + leaf.digest)
    return replace(leaf, component=prefix(rank) + path) if leaf.component == path else leaf


def _effect(effect: Effect, rank: int) -> Effect:
    changed = {prefix(rank) + path: both for path, both in effect.changed.items()}
    return replace(effect, changed=changed, rounded=frozenset(prefix(rank) + path for path in effect.rounded))


def _shown(steps: Sequence[int]) -> str:
    return f"{steps[0]} to {steps[-1]} ({len(steps)} marks)" if steps else "none"
