"""Several processes that train together: started and killed as one, with one trace of all of them.

The trace has the state of all ranks at each mark, with the rank before every path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from parity.capture import Leaf, StateSnapshot, component_from_name
from parity.checks.running.inline import Train
from parity.checks.running.launched import Launcher, attend
from parity.checks.running.process import ProcessRunner, may_fork
from parity.checks.running.rank import MeetingPlace, Rank, free_ports, place_of
from parity.checks.running.run import Effect, End, Mark, Request, Trace
from parity.errors import TrainerError

__all__ = ["RanksRunner", "merge_traces", "of_rank"]


class RanksRunner:
    """Runs the function in several processes at once, each in its place (`Rank`), with one folder for all.

    At every mark the ranks wait for each other, so that what each has saved is in the folder when it is looked at or
    copied, and a kill takes all of them at one mark.

    Args:
        train: The function; another process can import it.
        root: Directory for what the processes print.
        count: Number of ranks.
        launcher: The command that starts them; by default they are processes of this one.
    """

    mode = "process"
    parallel = 1

    def __init__(self, train: Train, root: Path, count: int, launcher: Sequence[str] = ()) -> None:
        self._train, self._root, self._words = train, root, launcher
        self.ranks = count
        self._stack = ExitStack()
        self._teams: dict[int, _Team] = {}
        """Number of ranks to who runs so many; another number than `ranks` is made when a run asks for it."""

    def __enter__(self) -> RanksRunner:
        self._team(self.ranks)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Kill the runs that take place, and refuse others."""
        for team in list(self._teams.values()):
            team.stop()

    def _team(self, count: int) -> _Team:
        if count not in self._teams:
            home = self._root if count == self.ranks else self._root / f"of-{count}"
            self._teams[count] = self._stack.enter_context(_Team(self._train, home, count, self._words))
        return self._teams[count]

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it once on every rank.

        Raises:
            TrainerError: The check was stopped, or the ranks do not mark the same steps.
            MarkError: A mark cannot be used.
        """
        traces = self._team(request.processes or self.ranks).run(folder, request)
        merged = merge_traces(traces)
        merged.folder = folder
        if request.kill_rank is not None and traces[request.kill_rank].end == "killed":
            merged.end = "killed"  # the others fail or wait for it
        return merged


class _Team:
    """Runs the function in one number of processes; arguments as of `RanksRunner`, with a directory of its own."""

    def __init__(self, train: Train, root: Path, count: int, launcher: Sequence[str]) -> None:
        self._launcher = Launcher(launcher, train, root, count) if launcher else None
        self._runners = [
            ProcessRunner(train, root / f"rank-{number}", place=place_of(number, count))
            for number in range(0 if launcher else count)
        ]
        for number in range(count):
            (root / f"rank-{number}").mkdir(parents=True, exist_ok=True)
        self._count = count
        self._stack = ExitStack()

    def __enter__(self) -> _Team:
        for runner in self._runners:
            self._stack.enter_context(runner)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Kill the runs that take place, and refuse others."""
        for runner in (*self._runners, *([self._launcher] if self._launcher else ())):
            runner.stop()

    def run(self, folder: Path, request: Request) -> list[Trace]:
        """Run it once on every rank; the trace of each."""
        if self._launcher is not None:
            return self._launcher.run(folder, [_for_rank(request, number) for number in range(self._count)])
        return self._traces(folder, request)

    def _traces(self, folder: Path, request: Request) -> list[Trace]:
        """Run it in processes of this one."""
        count = self._count
        ports, fork = free_ports(), may_fork(folder, request)  # asked once: the first rank to start may write
        with MeetingPlace(count) as place, ThreadPoolExecutor(count) as pool:
            ranks = [Rank(number=number, count=count, ports=ports, meeting=place.point) for number in range(count)]
            futures = [
                pool.submit(runner.run, folder, _for_rank(request, rank.number), rank, fork)
                for runner, rank in zip(self._runners, ranks, strict=True)
            ]
            try:
                attend(futures, lambda number, why: self._runners[number].end_runs(why))
            except BaseException:  # an interrupt: the pool would wait for ranks that wait for each other
                self.stop()
                raise
            return [future.result() for future in futures]


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
        tuples={prefix(at) + path for at, one in enumerate(snapshots) for path in one.tuples},
        orders=_named([one.orders for one in snapshots]),
        samples=_named([one.samples for one in snapshots]),
    )


def _named(found: Sequence[Mapping[str, T]]) -> dict[str, T]:
    return {prefix(at) + path: value for at, one in enumerate(found) for path, value in one.items()}


def _of_all(leaves: Sequence[Mapping[str, Leaf]]) -> dict[str, Leaf]:
    return {prefix(at) + path: _leaf(path, leaf, at) for at, one in enumerate(leaves) for path, leaf in one.items()}


def _leaf(path: str, leaf: Leaf, rank: int) -> Leaf:
    """Return a leaf as one of a rank: an alias gives the other path, a component without a word its own."""
    if leaf.role == "alias":
        leaf = replace(leaf, digest=prefix(rank) + leaf.digest)
    if leaf.role == "state" or leaf.component != path:
        return leaf
    known = component_from_name(f"_.{path}") == path  # a variable that is called by a word of the field, as `loss`
    return leaf if known else replace(leaf, component=prefix(rank) + path)


def _effect(effect: Effect, rank: int) -> Effect:
    changed = {prefix(rank) + path: both for path, both in effect.changed.items()}
    return replace(effect, changed=changed, rounded=frozenset(prefix(rank) + path for path in effect.rounded))


def _shown(steps: Sequence[int]) -> str:
    return f"{steps[0]} to {steps[-1]} ({len(steps)} marks)" if steps else "none"
