"""One run of a training function: what is asked of it, what runs it, and the trace that it leaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from parity.capture import Leaf, StateSnapshot
from parity.checks.running.entry import LoopEntry
from parity.checks.running.loads import Access, Decision, DecisionSite
from parity.checks.running.nudge import Nudge
from parity.checks.running.turned import Turn

__all__ = [
    "AT_ENTRY",
    "Effect",
    "End",
    "Mark",
    "Request",
    "Runner",
    "SameThreadExecutor",
    "Trace",
    "TraceReader",
    "TraceWriter",
    "without_digits",
]


AT_ENTRY = -2
"""Stands in `Request.keep_steps` for the state where the first step begins."""


class Runner(Protocol):
    """Runs a training function once, in this process or in one of its own."""

    mode: str
    parallel: int
    """Runs that may take place at once."""
    ranks: int
    """Processes that train together in each run."""

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it from its start, or from what the folder holds, to its end or to a kill.

        Args:
            folder: The folder that the function is given; made if there is none.
            request: How far it runs, and what is looked at.

        Raises:
            MarkError: A mark is no whole number or goes backwards.
            TrainerError: A process cannot be started any more.
        """

    def stop(self) -> None:
        """End the runs that take place, and refuse others: for a check that does not come to its end."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one run of the function is for."""

    steps: int
    """Last step of the run; the state after it is captured as well."""
    longest: int | None = None
    """Completed steps after which a run that has not ended counts as failed; None for no end."""
    reference: bool = False
    """Whether the others are compared with this run, and none resumes from what it saves."""
    order: Literal["", "reference", "saver"] = ""
    """Whose order of sets a new interpreter has: in processes the reference and what resumes from it have one, the
    runs that save have another. All other chance of a process is its own."""
    kill: int | None = None
    """Mark, counted from 0, at which the run is killed."""
    kill_step: int | None = None
    """Completed steps at or after which the run is killed, for a run that does not begin at step 0."""
    kill_rank: int | None = None
    """The one rank that is killed then, of several that train together; None kills all of them."""
    rest: int | None = None
    """Completed steps at which threads that save may come to an end first, as they may at a copy or a kill."""
    copies: Mapping[int, Path] = field(default_factory=dict)
    """Mark to a directory that takes a copy of the folder, as a kill at that mark would leave it."""
    keep: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Mark to the paths whose values are wanted; -1 is the final state."""
    keep_steps: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Completed steps to the paths whose values are wanted, wherever the run begins; -1 is the final state,
    `AT_ENTRY` that where the first step begins."""
    put_back: bool = False
    """Whether the generators that all code shares are put back after declared regions."""
    watch: bool = False
    """Whether the state before and after statements that save or evaluate is compared."""
    loads: frozenset[str] = frozenset()
    """Names of which is noted whether the trainer takes or writes them first in a step."""
    decisions: frozenset[DecisionSite] = frozenset()
    """Names in conditions of which is noted whose value is taken."""
    turns: frozenset[Turn] = frozenset()
    """Choices that give their other value in this run."""
    filled: bool = False
    """Whether new arrays without values hold zeros in this run (`numpy.empty`, `torch.empty`)."""
    writes: Sequence[tuple[str, int]] = ()
    """Files and lines that write to the folder, from an earlier run: statements to watch."""
    nudge: Nudge | None = None
    """How the parameters are moved at the first mark; None to leave them."""
    entry: LoopEntry | None = None
    """Where the first step begins, if the state there is wanted."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function, besides the folder."""
    processes: int | None = None
    """Processes that train together in this run; None for as many as in the others of its runner."""


class SameThreadExecutor(Executor):
    """Runs everything in this thread, when its result is asked for or at once."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function now and return a future that is done; what the function raises is raised here."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:  # type: ignore[override]
        """Call a function for each item when its turn comes."""
        return map(function, *iterables)


End = Literal["finished", "killed", "failed", "lost", "late"]
"""How a run ended; `lost`: its process died without a word; `late`: it was ended, since it took too long."""


@dataclass(slots=True)
class Mark:
    """One mark: the loop had completed `step` steps."""

    step: int
    snapshot: StateSnapshot
    saved: tuple[str, ...] = ()
    """Files that changed since the mark before, by their names in the folder."""
    gone: tuple[str, ...] = ()
    """Files that were there at the mark before and are not any more."""
    read: bool = False
    """Whether the loop read or listed files of the folder since the mark before."""


@dataclass(slots=True)
class Effect:
    """What one statement that saves or evaluates did to the live state."""

    what: Literal["save", "evaluation"]
    step: int
    """Completed steps at the mark before it."""
    where: str
    """`file.py:41: save(model)`."""
    changed: dict[str, tuple[Leaf | None, Leaf | None]]
    """Path to the leaf before and after."""
    rounded: frozenset[str] = frozenset()
    """Paths of parameters that changed by no more than rounding: swapped for others and put back by arithmetic."""
    declared: bool = False
    """Whether the loop says what the statement is for (`parity.evaluation`): then what it changed is a loss."""


@dataclass(slots=True)
class Trace:
    """One run."""

    marks: list[Mark] = field(default_factory=list)
    final: StateSnapshot | None = None
    """State when the function returned; None if that could not be seen."""
    effects: list[Effect] = field(default_factory=list)
    end: End = "lost"
    error: str = ""
    """Traceback of a run that failed, or the last lines of a process that was lost."""
    folder: Path = Path()
    code: tuple[str, int] = ("", 0)
    """File and first line of the function whose frame holds the marks."""
    of_python: set[str] = field(default_factory=set)
    """Functions of Python's own library whose frames lie around the marks, such as those of an event loop."""
    loop: LoopEntry | None = None
    """Where the body of the loop begins that the marks are made in; None where the mark begins it."""
    entry: StateSnapshot | None = None
    """State where the first step began, if that was asked for."""
    frameworks: tuple[str, ...] = ()
    """Frameworks whose kinds were seen."""
    names: set[str] = field(default_factory=set)
    """Files that were in the folder at any mark."""
    reads: set[str] = field(default_factory=set)
    """Files of the folder that were opened for reading."""
    restored: set[str] = field(default_factory=set)
    """Those that were opened before the first mark: what a run resumed from."""
    reading: bool = False
    """Whether files of the folder were read or listed since the last mark."""
    appended: set[str] = field(default_factory=set)
    """Files that did nothing but grow at their end: logs, by how they are written."""
    at_start: tuple[str, ...] = ()
    """Files that it wrote before its first mark, of a run whose first mark is left out of the others."""
    removed: list[tuple[int, str]] = field(default_factory=list)
    """Mark after which a file or directory of the folder was removed, and its name."""
    renamed: set[str] = field(default_factory=set)
    """Names, in the folder, of files and directories that were given other names: saves that were on their way."""
    returned: dict[str, Leaf] = field(default_factory=dict)
    """What the function returned, as leaves."""
    printed: dict[str, Leaf] = field(default_factory=dict)
    """What the run printed, line by line, as leaves."""
    state_was_named: bool = False
    """Whether the marks said what the state is: what is new at the return was never said."""
    nudged: list[str] = field(default_factory=list)
    """Parameters that were moved at the first mark."""
    writes: list[tuple[str, int]] = field(default_factory=list)
    """Files and lines of the trainer's code during which files of the folder were opened for writing."""
    executed: set[tuple[str, int]] = field(default_factory=set)
    """File and first line of each function of the trainer that was called after the first mark, in a watched run."""
    loads: set[Access] = field(default_factory=set)
    """First accesses to names that the request asks for, after each mark."""
    decisions: set[Decision] = field(default_factory=set)
    """What conditions took that the request asks for."""

    def saves(self, reads: Collection[str] = (), passing: Collection[str] = ()) -> list[int]:
        """Return the marks, counted from 0, before which a checkpoint was saved.

        Args:
            reads: Files that a resumed run read: then only files named like those are checkpoints. Digits in names
                do not count. Logs do not count either.
            passing: Names without digits of what is not whole yet.
        """
        like = {without_digits(name) for name in reads}

        def is_checkpoint(name: str) -> bool:
            known = without_digits(name)
            return name not in self.appended and known not in passing and (not like or known in like)

        return [at for at, mark in enumerate(self.marks) if at > 0 and any(map(is_checkpoint, mark.saved))]

    @property
    def steps(self) -> list[int]:
        """Return the completed steps at the marks."""
        return [mark.step for mark in self.marks]


def without_digits(name: str) -> str:
    """Return a file's name without its digits.

    Example:
        >>> without_digits("checkpoint-40/model.pt")
        'checkpoint-#/model.pt'
    """
    return re.sub(r"\d+", "#", name)


class TraceWriter:
    """Passes marks on as they come, as rows; a leaf that did not change is not passed on again.

    Args:
        send: Takes a row.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._last: dict[str, Leaf] = {}

    def mark(self, mark: Mark) -> None:
        """Pass a mark on."""
        changed = {p: leaf for p, leaf in mark.snapshot.leaves.items() if self._last.get(p) != leaf}
        gone = [p for p in self._last if p not in mark.snapshot.leaves]
        seen = mark.snapshot
        rest = (
            seen.dead,
            seen.unseen,
            seen.values,
            seen.not_finite,
            seen.losses,
            seen.probes,
            seen.tuples,
            seen.orders,
            seen.samples,
        )
        self._send(("mark", mark.step, (mark.saved, mark.gone, mark.read), changed, gone, rest))
        self._last = dict(mark.snapshot.leaves)

    def end(self, trace: Trace) -> None:
        """Pass everything but the marks on."""
        self._send(("end", {name: getattr(trace, name) for name in _REST}))


_REST = tuple(one.name for one in fields(Trace) if one.name not in ("marks", "folder"))


class TraceReader:
    """Puts the rows of a `TraceWriter` together; what the death of its process cut off is missing."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._leaves: dict[str, Leaf] = {}

    def add(self, row: Any) -> None:
        """Take a row."""
        if row[0] == "mark":
            _, step, files, changed, gone, rest = row
            lost = set(gone)
            self._leaves = {p: leaf for p, leaf in self._leaves.items() if p not in lost} | changed
            self.trace.marks.append(Mark(step, StateSnapshot(dict(self._leaves), *rest), *files))
        else:
            for name, value in row[1].items():
                setattr(self.trace, name, value)
