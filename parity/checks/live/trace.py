"""Trace: what a training function showed in one run, mark by mark; written while it runs, read after its death."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from parity.capture import Leaf, Snapshot

__all__ = ["Effect", "End", "Mark", "Trace", "TraceWriter", "blot", "read_trace"]

End = Literal["finished", "killed", "failed", "lost"]
"""How a run ended; `lost`: its process died without a word."""


@dataclass(slots=True)
class Mark:
    """One mark: the loop had completed `step` steps."""

    step: int
    snapshot: Snapshot
    saved: tuple[str, ...] = ()
    """Checkpoint files that changed since the mark before, by their names in the folder."""


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


@dataclass(slots=True)
class Trace:
    """One run."""

    marks: list[Mark] = field(default_factory=list)
    final: Snapshot | None = None
    """State when the function returned; None if that could not be seen."""
    effects: list[Effect] = field(default_factory=list)
    end: End = "lost"
    error: str = ""
    """Traceback of a run that failed, or the last lines of a process that was lost."""
    folder: Path = Path()
    code: tuple[str, int] = ("", 0)
    """File and first line of the function whose frame holds the marks."""
    frameworks: tuple[str, ...] = ()
    """Frameworks whose kinds were seen."""
    names: set[str] = field(default_factory=set)
    """Files that were in the folder at any mark."""
    reads: set[str] = field(default_factory=set)
    """Files of the folder that were opened for reading."""
    writes: list[tuple[str, int]] = field(default_factory=list)
    """Files and lines of the marked code during which files of the folder were opened for writing."""

    def saves(self, reads: Collection[str] = ()) -> list[int]:
        """Return the marks, counted from 0, before which a checkpoint was saved.

        Args:
            reads: Files that a resumed run read: then only files named like those are checkpoints. Digits in names
                do not count.
        """
        like = {blot(name) for name in reads}
        return [
            at
            for at, mark in enumerate(self.marks)
            if at > 0 and any(not like or blot(name) in like for name in mark.saved)
        ]

    @property
    def steps(self) -> list[int]:
        """Return the completed steps at the marks."""
        return [mark.step for mark in self.marks]


def blot(name: str) -> str:
    """Return a file's name without its digits.

    Example:
        >>> blot("checkpoint-40/model.pt")
        'checkpoint-#/model.pt'
    """
    return re.sub(r"\d+", "#", name)


class TraceWriter:
    """Appends marks to a file as they come; a leaf that did not change is not written again."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self._file = file
        self._last: dict[str, Leaf] = {}

    def mark(self, mark: Mark) -> None:
        """Append a mark."""
        changed = {p: leaf for p, leaf in mark.snapshot.leaves.items() if self._last.get(p) != leaf}
        gone = [p for p in self._last if p not in mark.snapshot.leaves]
        rest = (mark.snapshot.dead, mark.snapshot.unseen, mark.snapshot.values)
        self._write(("mark", mark.step, mark.saved, changed, gone, rest))
        self._last = dict(mark.snapshot.leaves)

    def end(self, trace: Trace) -> None:
        """Append everything but the marks."""
        self._write(("end", {name: getattr(trace, name) for name in _REST}))

    def _write(self, row: Any) -> None:
        pickle.dump(row, self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self._file.flush()


_REST = ("final", "effects", "end", "error", "code", "frameworks", "writes", "names", "reads")


def read_trace(path: Path) -> Trace:
    """Read what a process of this check wrote; what its death cut off is left out.

    Only for files that this check's own processes wrote in its own directory: they are pickles.
    """
    trace, leaves = Trace(), dict[str, Leaf]()
    for row in _rows(path):
        if row[0] == "mark":
            _, step, saved, changed, gone, (dead, unseen, values) = row
            leaves = {p: leaf for p, leaf in leaves.items() if p not in set(gone)} | changed
            trace.marks.append(Mark(step, Snapshot(dict(leaves), dead, unseen, values), saved))
        else:
            for name, value in row[1].items():
                setattr(trace, name, value)
    return trace


def _rows(path: Path) -> Iterator[Any]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return
