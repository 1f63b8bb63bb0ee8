"""How a process began: what it held from its first mark to its end, and what it had written by then.

A resumed process says so in files that both leave: where it began, how many began before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from parity.capture import Leaf
from parity.checks.judging.evidence import NONE, Uninterrupted
from parity.checks.judging.set_at_start import SetAtStart, set_at_start
from parity.checks.running import Trace, without_digits

__all__ = ["ProcessStart", "begun_of"]

_NOTHING = ("0", "None", "False")
_TRUE = {"false": "true", "False": "True", "FALSE": "TRUE", "no": "yes", "No": "Yes", "off": "on", "Off": "On"}
"""What a text has for a flag that is not set, as languages and forms of documents write it, to one that is."""
_FALSE = re.compile(rf"\b(?:{'|'.join(_TRUE)})\b")


@dataclass(frozen=True)
class ProcessStart:
    """How two processes began: what each held from its first mark to its end, and what it had written by then."""

    values: frozenset[tuple[str, str]] = frozenset()
    """Values that no step changed and that differ: of the uninterrupted run, and of the resumed one."""
    files: frozenset[str] = frozenset()
    """Files that the resumed process wrote before its first mark and not after it."""
    restarts: int = 0
    """Processes before it: what a trainer counts that counts its restarts."""
    own: frozenset[tuple[str, str]] = frozenset()
    """What the resumed process alone held from its first mark on, unchanged: last part of the path, and value."""
    changed: frozenset[str] = frozenset()
    """Files that it wrote before its first mark, and maybe after it too."""
    at_start: frozenset[str] = frozenset()
    """Files that both processes wrote before their first mark, and not after it: each one's own description."""
    written: frozenset[tuple[str, str]] | None = None
    """Paths and values in those, as they were at its first mark; None where nobody looked."""
    by_chance: frozenset[str] = frozenset()
    """Paths in those in which two processes that began alike differ at their first mark, such as times."""
    families: frozenset[str] = frozenset()
    """Names, without digits, of files that the uninterrupted process wrote before its first mark."""
    set_by_steps: bool = False
    """Whether a flag that steps set is otherwise at the end of the resumed run, too."""
    made: frozenset[str] = frozenset()
    """Files that this or an earlier resumed process wrote before its first mark, and the uninterrupted one never."""
    counted: SetAtStart = field(default_factory=SetAtStart)
    """What the beginning of each process alone sets, such as its number."""

    def tells(self, name: str, leaf: Leaf, other: Leaf | None, start: int) -> bool:
        """Return whether a value says where a process began: nothing in a run that nothing stopped, else the step.

        A count that was lost may be the same number (`missing: 12`): the process has to have known it when it began.

        Args:
            name: The file.
            leaf: What the uninterrupted run left there.
            other: What the resumed one left.
            start: Completed steps at the resume.
        """
        if name in self.at_start and leaf.role in ("scalar", "record") and not leaf.kind.startswith("file["):
            return True
        if self.counted.has(leaf, other):
            return True
        if other is None or leaf.digest not in _NOTHING:
            return False
        text = leaf.digest == "None" and other.kind == "str"
        if not text and other.digest not in (str(start), *map(str, range(1, self.restarts + 1)), "True"):
            return False
        if name in self.files:
            return True
        return any(
            left in _NOTHING and right not in _NOTHING and (right == other.digest or text or other.digest == "True")
            for left, right in self.values
        )

    def flips(self, path: str, line: Leaf | None, there: Collection[str]) -> bool:
        """Return whether a line of a text is one of the other run's but for a flag that says how the process began.

        Args:
            path: The file, and the line in it, which the uninterrupted run left.
            line: The same line in what the resumed one left.
            there: Paths of what that one left.
        """
        flags = any(left in _NOTHING and right == "True" for left, right in self.values)
        if line is not None or not flags or self.set_by_steps:  # which of the flags a text shows cannot be told
            return False
        return any(f"{path[: at.start()]}{_TRUE[at[0]]}{path[at.end() :]}" in there for at in _FALSE.finditer(path))

    def left(self, path: str, leaf: Leaf) -> bool:
        """Return whether it left a value that nobody else did when it began, or held it from then on.

        Where a file was written then, and nobody looked what held it, that is taken to be so.

        Args:
            path: The file, and the path in it.
            leaf: The value.
        """
        name = path.partition(":")[0]
        if (_last(path), leaf.digest) in self.own or path in self.by_chance:
            return True
        return name in self.changed and (self.written is None or (path, leaf.digest) in self.written)

    def is_of_one_process(self, name: str, names: Collection[str]) -> bool:
        """Return whether each process makes a file of that kind for itself when it begins: `log_0.txt`, `log_1.txt`.

        Args:
            name: The file.
            names: Files that the uninterrupted run left.
        """
        return name not in names and name in self.made and without_digits(name) in self.families


def _last(path: str) -> str:
    """Return the last attribute, key or number of a path."""
    return path[max(path.rfind("["), path.rfind("."), path.rfind(" ") + 1) :]


def begun_of(
    reference: Trace, resumed: Trace, before: Sequence[Trace] = (), uninterrupted: Uninterrupted | None = None
) -> ProcessStart:
    """Return how an uninterrupted run and a resumed one began.

    Args:
        reference: The uninterrupted run.
        resumed: The run of the process that resumed.
        before: The processes that were killed before it.
        uninterrupted: What equal runs say; by default nothing is known of what steps set.
    """
    if not resumed.marks:
        return ProcessStart()
    first, later = resumed.marks[0], {name for mark in resumed.marks[1:] for name in mark.saved}
    theirs = {name for mark in reference.marks[1:] for name in mark.saved}
    kept = [_unchanged(trace) for trace in (reference, resumed)]
    pairs = {(leaf.digest, kept[1][path].digest) for path, leaf in kept[0].items() if path in kept[1]}
    last = [trace.marks[-1].snapshot.leaves for trace in (reference, resumed)]
    known = {path for mark in reference.marks for path in mark.snapshot.leaves}
    return ProcessStart(
        values=frozenset(pair for pair in pairs if pair[0] != pair[1]),
        files=frozenset(first.saved) - later,
        restarts=len(before),
        own=frozenset((_last(path), leaf.digest) for path, leaf in kept[1].items() if path not in known),
        changed=frozenset(first.saved),
        at_start=(frozenset(first.saved) - later) & (frozenset(reference.marks[0].saved) - theirs),
        set_by_steps=any(
            leaf.digest in _NOTHING
            and last[1].get(path, NONE).digest == "True"
            and not (path in kept[0] and path in kept[1])
            for path, leaf in last[0].items()
        ),
        families=frozenset(map(without_digits, reference.marks[0].saved)),
        made=frozenset(first.saved).union(*(one.at_start for one in before)) - reference.names,
        counted=SetAtStart()
        if uninterrupted is None
        else set_at_start(reference.marks, resumed.marks, len(before), uninterrupted),
    )


def _unchanged(trace: Trace) -> dict[str, Leaf]:
    """Return the plain values that are the same at all marks of a run."""
    first, *others = (mark.snapshot.leaves for mark in trace.marks)
    found = {path: leaf for path, leaf in first.items() if leaf.role == "scalar"}
    return {path: leaf for path, leaf in found.items() if all(leaf.same(later.get(path)) for later in others)}
