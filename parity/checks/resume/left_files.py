"""Files that runs left in their folders: read, and those of a resumed run judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from parity import sides
from parity.capture import Leaf, differing
from parity.checks.judging import (
    NONE,
    Evidence,
    Outcome,
    ProcessStart,
    has_bytes_twice,
    is_floating,
    judge_files,
    own_folders,
)
from parity.checks.running import Trace, contents, is_database, list_folder

__all__ = ["LeftFiles", "asks_for_start", "either", "read_files"]


def read_files(folder: Path, logs: Collection[str]) -> dict[str, Leaf]:
    """Return what a folder holds, `file: path in it` to leaf, by the readers of the frameworks that are there.

    Args:
        folder: Folder of a run.
        logs: Files that grow while a run goes.
    """
    adapters = sides.adapters().values()
    readers = [reader for adapter in adapters for reader in adapter.readers]
    return contents(folder, readers, logs, [adapter.is_part for adapter in adapters])


class LeftFiles:
    """Files that runs left in their folders, compared with those of the uninterrupted run.

    Args:
        reference: The uninterrupted run.
        folder: Its folder.
        grown: Files to which resumed processes added lines. Of one that the uninterrupted run wrote in one step alone
            nothing else tells that it grows.
        known: What that folder holds, by the files that grow: kept for further scenarios.
        lock: Held while it is read.
    """

    def __init__(
        self,
        reference: Trace,
        folder: Path,
        grown: Collection[str],
        known: dict[frozenset[str], dict[str, Leaf]],
        lock: AbstractContextManager[object],
    ) -> None:
        self._reference = reference
        once = {name for name in grown if sum(name in mark.saved for mark in reference.marks) == 1}
        self._logs, self._folder = frozenset(reference.appended | once), folder
        with lock:
            if self._logs not in known:
                known[self._logs] = self.read(folder)
            self._expected = known[self._logs]

    def read(self, folder: Path) -> dict[str, Leaf]:
        """Return what a folder holds."""
        return read_files(folder, self._logs)

    def without_noise(self, equal: Iterable[Path]) -> dict[str, Leaf]:
        """Return what equal runs left, with nothing in the place of what they differ in or rounding moves.

        Args:
            equal: Their folders.
        """
        noise = {path for folder in equal for path in differing(self._expected, self.read(folder))}
        noise |= {path for path, leaf in self._expected.items() if is_floating(leaf)}
        names = {path.partition(":")[0] for path in self._expected}
        chance = {path: NONE for path in noise - self._expected.keys() if path.partition(":")[0] in names}
        return {path: NONE if path in noise else leaf for path, leaf in self._expected.items()} | chance

    def judge(
        self,
        trace: Trace,
        folder: Path,
        left: Collection[str],
        again: Mapping[str, Leaf] | None,
        begun: ProcessStart,
        ordered: Mapping[str, Leaf] | None = None,
        *,
        extended: bool,
    ) -> Outcome:
        """Compare what a resumed run left with what the uninterrupted one left.

        Args:
            trace: The resumed run.
            folder: Its folder.
            left: Files that the process before it left.
            again: What an equal run left; None where that is not known yet.
            begun: How the process began.
            ordered: What a run left that orders its sets as the process did that had saved: where the resumed run
                left the same, that is as it should be.
            extended: Whether the process before was a shorter run that came to its end: there it did what this one
                did not do at that step, such as a last save.
        """
        names = self._reference.names
        # a last save behind the last mark is in the folder alone
        known = names | {path.partition(":")[0] for path in self._expected}
        new = (trace.names | set(list_folder(folder))) - set(left) - known
        own = own_folders(new, known)
        steps = (trace.marks[0].step if trace.marks else 0, self._reference.marks[-1].step)
        earlier = set(left) - names if extended else set()
        again = self._expected if again is None else again
        got = self.read(folder)
        expected = self._expected if ordered is None else either(self._expected, ordered, got)
        records, twice = self._records(got), self._twice(got, folder)
        found = judge_files(
            expected, again, got, steps, own, self._logs, begun, earlier, records=records, twice=twice
        )
        if extended:
            found.bookkeeping += [e for e in found.broken if _is_further(e)]
            found.broken = [e for e in found.broken if not _is_further(e)]
        return found

    def _records(self, got: Mapping[str, Leaf]) -> set[str]:
        """Return the files that grow by records: streams, and databases, whatever these do with their bytes."""
        names = {path.partition(":")[0] for path in got}
        there = {name for name in names if (self._folder / name).is_file()}
        return {name for name in there if name in self._logs or is_database(_head(self._folder / name))}

    def _twice(self, got: Mapping[str, Leaf], folder: Path) -> set[str]:
        """Return the files that grow, of no known kind, in which a stretch of bytes stands twice."""
        names = {
            name
            for name in self._logs
            if f"{name}:" in got and not got[f"{name}:"].same(self._expected.get(f"{name}:"))
        }
        there = {name for name in names if (self._folder / name).is_file()}
        return {name for name in there if has_bytes_twice(self._folder / name, folder / name)}


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def either(expected: Mapping[str, Leaf], ordered: Mapping[str, Leaf], got: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Return what was expected, with what a run in another order of sets has where a resumed run has it too.

    Args:
        expected: The leaves of the uninterrupted run.
        ordered: Those of one with the order of sets of the process that had saved.
        got: Those of the resumed run.
    """
    alike = {path for path in expected.keys() | got if _same(ordered.get(path), got.get(path))}
    return {path: leaf for path, leaf in expected.items() if path not in alike} | {
        path: leaf for path, leaf in got.items() if path in alike
    }


def _same(one: Leaf | None, other: Leaf | None) -> bool:
    return one.same(other) if one is not None else other is None


def asks_for_start(found: Outcome, begun: ProcessStart) -> bool:
    """Return whether files have something more, and it may be what a resumed process left in them when it began.

    Args:
        found: What their comparison found.
        begun: What is known of that process.
    """
    return any(_is_further(e) and e.path.partition(":")[0] in begun.changed for e in found.bookkeeping)


def _is_further(e: Evidence) -> bool:
    """Return whether the resumed run alone has something in a file that both have."""
    return e.expected == "absent" and e.path.partition(":")[2] != ""
