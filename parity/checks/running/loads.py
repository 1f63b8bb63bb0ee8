"""Loads: which variables, attributes and keys of a name the trainer's code takes before it writes them, step by step.

A value that differs at a resume matters where it is read before it is written. For variables of the loop the code
says which; for attributes and keys that any function may take it is measured, in one more run of the same steps.

A condition has the name alone too. A meter for people has a `count`, and so has the object that stops the run: whose
it is, the run says. At each condition that was asked for, the object before the name is looked up in the frame and
known again by its identity among the objects that the last mark reached. Properties on the way there are read once
more, as the condition reads them; nothing else is called.
"""

from __future__ import annotations

import dis
import functools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

import numpy as np

__all__ = ["BEYOND", "INSIDE", "Access", "Decision", "DecisionSite", "DecisionWatch", "LoadWatch", "is_unread"]

INSIDE = "."
"""Before a name: it is that of an attribute or a key, and no variable's."""

BEYOND = "?"
"""Before a name, and before `INSIDE`: what only asks whether something is there does not count as taking it."""

AccessKind = Literal["load", "store"]
Access = tuple[str, int, AccessKind]
"""Name, number of marks before it, and what came first of that name since the last of them."""


class LoadWatch:
    """Notes the first access to each of some names after every mark.

    Args:
        names: Identifiers: the last one of a path each; after `INSIDE` variables of that name do not count.
        count: Returns how many marks there were.
        found: Takes the accesses.
        is_users: Returns whether a file is the trainer's.
    """

    def __init__(
        self, names: Collection[str], count: Callable[[], int], found: set[Access], is_users: Callable[[str], bool]
    ) -> None:
        self._names, self._count, self._found, self._is_users = frozenset(names), count, found, is_users
        self._seen: set[tuple[str, int]] = set()

    def enter(self, frame: FrameType) -> Any:
        """Watch a frame from now on, if its code is the trainer's and has one of the names in it."""
        accesses = _accesses(frame.f_code, self._names)
        if not accesses or not self._is_users(frame.f_code.co_filename):
            return None
        self._found |= _taken_first(frame.f_code, self._names)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.trace

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace function of a frame."""
        if event == "opcode":
            for name, kind in _accesses(frame.f_code, self._names).get(frame.f_lasti, ()):
                key = (name, self._count())
                if key not in self._seen:
                    self._seen.add(key)
                    self._found.add((*key, kind))
        return self.trace


ALWAYS = -1
"""In place of the number of marks: a function may take the name before it writes it, on some path."""


@functools.lru_cache(maxsize=1 << 12)
def _taken_first(code: CodeType, names: frozenset[str]) -> frozenset[Access]:
    """Return the names that a function writes after it takes them: a count of evaluations, set to 0 or one more.

    In a run in which only the other branch was taken nothing else shows that it is read.
    """
    kinds: dict[str, list[AccessKind]] = {}
    for _, accesses in sorted(_accesses(code, names).items()):
        for name, kind in accesses:
            kinds.setdefault(name, []).append(kind)
    return frozenset((name, ALWAYS, "load") for name, of in kinds.items() if of[0] == "load" and "store" in of)


@functools.lru_cache(maxsize=1 << 12)
def _accesses(code: CodeType, names: frozenset[str]) -> Mapping[int, list[tuple[str, AccessKind]]]:
    """Return what each instruction of a function takes or writes, by its offset.

    A constant text that is one of the names counts as taken, unless it is the key of a subscript that is written.
    """
    found: dict[int, list[tuple[str, AccessKind]]] = {}
    instructions = list(dis.get_instructions(code))
    for at, one in enumerate(instructions):
        kinds = [part for part in one.opname.split("_") if part in ("LOAD", "STORE")]  # two in one, of Python 3.13
        values = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if not kinds:
            continue
        following = instructions[at + 1].opname if at + 1 < len(instructions) else ""
        for value, kind in zip(values, kinds if len(kinds) == len(values) else kinds * len(values), strict=False):
            if not isinstance(value, str):
                continue
            # a parameter may have the name of the attribute that it is put into: `self.epoch = epoch`
            inside = any(word in one.opname for word in ("ATTR", "METHOD", "CONST"))
            known: tuple[str, ...] = (value, INSIDE + value) if inside else (value,)
            written = kind == "STORE" or (one.opname == "LOAD_CONST" and following == "STORE_SUBSCR")
            if not _asks(instructions[at + 1 : at + 3]):
                known += tuple(BEYOND + name for name in known)
            for name in names.intersection(known):
                found.setdefault(one.offset, []).append((name, "store" if written else "load"))
    return found


def _asks(following: Sequence[dis.Instruction]) -> bool:
    """Return whether the instructions behind one that takes a value ask no more than whether it is there."""
    names = [one.opname for one in following]
    jumps = bool(names) and "JUMP" in names[0] and "IF" in names[0]
    at_once = jumps or names[:1] in (["TO_BOOL"], ["UNARY_NOT"])
    return at_once or (names[1:] == ["IS_OP"] and following[0].argval is None)


def is_unread(
    name: str, accesses: Collection[Access], first: int, last: int, *, written: bool, ever: bool = True
) -> bool:
    """Return whether a value was not taken after a mark until it was written.

    Args:
        name: Last identifier of its path.
        accesses: What was measured.
        first: Marks before the first step in question.
        last: Marks before the last one.
        written: Whether the last step writes it. What it does then without an access that was seen, such as a
            function in C, is not known: False is returned.
        ever: Whether a function that may take it, on a path that was not gone, counts as well.
    """
    if ever and (name, ALWAYS, "load") in accesses:
        return False
    kinds = {count: kind for of, count, kind in accesses if of == name and first <= count <= last}
    if written:
        return kinds.get(last) == "store" and all(kinds.get(at) is None for at in range(first, last))
    return not kinds


class DecisionSite(NamedTuple):
    """A name in a condition."""

    file: str
    line: int
    """Of the statement."""
    name: str
    base: str | None
    """Source of the object before an attribute or a key; empty for a variable, None where it cannot be looked up."""


class Decision(NamedTuple):
    """What a condition took."""

    how: Literal["path", "value", "name"]
    """A value at a known path; a value that is known by what it was; or no more than a name."""
    what: str
    """The path, or the name."""
    value: str = ""
    """As a leaf shows it, where the value is what is known."""
    at: int = 0
    """Marks before it, there."""
    site: DecisionSite | None = None
    """Where it was taken."""


class DecisionWatch:
    """Notes whose values conditions take.

    Args:
        sites: The names in conditions that are looked for.
        count: Returns how many marks there were.
        found: Takes the decisions.
    """

    def __init__(self, sites: Collection[DecisionSite], count: Callable[[], int], found: set[Decision]) -> None:
        self._sites: dict[tuple[str, int], list[DecisionSite]] = {}
        for site in sites:
            self._sites.setdefault((site.file, site.line), []).append(site)
        self._files = {site.file for site in sites}
        self._count, self._found = count, found
        self.owners: Mapping[int, str] = {}
        """Identity to path of the objects that the last mark reached; they are kept alive by `held`."""
        self.held: Any = None
        self.marking: set[CodeType] = set()
        """Code of the frames that marks are made in: their variables are paths by themselves."""

    def enter(self, frame: FrameType) -> Any:
        """Watch a frame from now on, if its file has one of the sites."""
        return self.trace if frame.f_code.co_filename in self._files else None

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace function of a frame."""
        if event == "line":
            for site in self._sites.get((frame.f_code.co_filename, frame.f_lineno), ()):
                self._found.add(self._decision(site, frame)._replace(site=site))
        return self.trace

    def _decision(self, site: DecisionSite, frame: FrameType) -> Decision:
        name, unknown = site.name, Decision("name", site.name)
        if site.base is None:
            return unknown
        if not site.base:
            if frame.f_code in self.marking:
                return Decision("path", name)
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            path = self.owners.get(id(value))
            return Decision("path", path) if path is not None else self._known_by(name, value)
        try:
            owner = eval(_compiled(site.base), frame.f_globals, frame.f_locals)  # names, attributes and keys alone
            owner = _behind(owner)
        except Exception:  # not there yet, or a property that raises
            return unknown
        path = self.owners.get(id(owner))
        if path is not None:
            return Decision("path", f"{path}.{name}")
        inside = owner if type(owner) is dict else getattr(owner, "__dict__", {})
        return self._known_by(name, inside[name]) if name in inside else unknown

    def _known_by(self, name: str, value: Any) -> Decision:
        if not isinstance(value, bool | int | float | str | None | np.generic):
            return Decision("name", name)
        return Decision("value", name, repr(value.item() if isinstance(value, np.generic) else value), self._count())


def _behind(owner: Any) -> Any:
    """Return the object that a weak proxy stands for, else the object itself: hooks hold their trainer by one."""
    return owner.__reduce_ex__.__self__ if type(owner) in weakref.ProxyTypes else owner


@functools.lru_cache(maxsize=1 << 10)
def _compiled(base: str) -> CodeType:
    return compile(base, "<condition>", "eval")
