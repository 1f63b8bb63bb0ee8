"""Leaves of a live state: what was seen at one moment of a training loop, as one flat list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_DIGEST = re.compile("[0-9a-f]{32}")

__all__ = ["HARD", "Extent", "Leaf", "PathLeaves", "Role", "StateSnapshot", "differing", "root_of"]

Role = Literal["state", "stream", "flag", "array", "gradient", "position", "scalar", "alias", "structure"]

HARD: frozenset[Role] = frozenset({"state", "stream", "flag"})
"""Roles whose leaves take part in training by what they are; of the others it has to be shown."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Which elements of an array that lies in several processes are in this one, by the framework's own word."""

    shape: tuple[int, ...]
    """Of the whole array."""
    boxes: tuple[tuple[tuple[int, int], ...], ...]
    """First and end along each axis of every part that is here, in the order in which the values are copied."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of the state.

    Two leaves are equal if kind and digest are: the component is a name, and the role follows from the kind.
    """

    role: Role
    """`state`: parameters, buffers, optimizer, schedule, scaler, modes. `stream`: a random generator. `flag`: a
    global setting that changes results. `array`: an array of unknown purpose. `gradient`. `position`: inside of an
    iterator or sampler. `scalar`: a Python value of unknown purpose. `alias`: a second path to an object or to its
    memory. `structure`: length and type of a container."""
    component: str
    """What it is in the field's words, such as `optimizer.second_moment`."""
    kind: str
    """Kind, dtype, shape and memory order, such as `float32[3x4]`, `int`, `list`."""
    digest: str
    """XXH3-128 of the bytes in memory order; of a short Python value its text."""
    copy: str = ""
    """Of a value that a framework keeps alike in several processes, what all copies of it give: which processes have
    it, and which part of the whole it is. Empty where nothing says that it is one."""
    extent: Extent | None = None
    """Of an array that a framework splits over processes, what of the whole it is; a replica has all of it. None
    where nothing says that it is a part."""

    def same(self, other: Leaf | None) -> bool:
        """Return whether another leaf holds the same value, bit for bit."""
        return other is not None and self.kind == other.kind and self.digest == other.digest

    @property
    def text(self) -> str:
        """Return the value if it is short, otherwise its type."""
        return f"{self.kind} {self.digest[:8]}" if _DIGEST.fullmatch(self.digest) else self.digest


@dataclass(slots=True)
class StateSnapshot:
    """All leaves that were seen at one moment."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    """Path, as its owner would write it, to leaf."""
    dead: frozenset[str] = frozenset()
    """Names of variables that the code writes before it reads them again: no loss if they differ."""
    unseen: dict[str, str] = field(default_factory=dict)
    """Path to the type of what could not be looked into."""
    values: dict[str, Any] = field(default_factory=dict)
    """Path to a copy of the value, of the leaves that were asked for: NumPy arrays and Python values."""
    not_finite: dict[str, str] = field(default_factory=dict)
    """Path to `nan` or `inf`, of floating arrays that hold such a number, `only nan` where no other; on request."""
    losses: dict[str, float] = field(default_factory=dict)
    """Path to value, of each single floating number that is called a loss: to be drawn, never judged."""
    probes: dict[str, str] = field(default_factory=dict)
    """Path in `unseen` to a digest of what the object shows of itself: it changed if two marks differ in it. A path
    without one could not even be probed."""
    tuples: set[str] = field(default_factory=set)
    """Paths of tuples: a list of the same elements has the same leaves, and is not equal to one."""
    orders: dict[str, str] = field(default_factory=dict)
    """Path of a mapping of several keys to these in their order, or a digest of them: two of another order are equal,
    and code may take one by its place."""
    samples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Path of a container that is one leaf to some of the floating numbers in it, as Python writes them."""

    def is_dead(self, path: str) -> bool:
        """Return whether a path begins with a variable that is written before it is read."""
        return any(path.startswith(name) and path[len(name) : len(name) + 1] in _NEXT for name in self.dead)


_NEXT = ("", ".", "[")
"""What may follow the name of a variable in a path."""


def root_of(path: str) -> str:
    """Return the variable that a path begins with; of an outer frame, with the function's name.

    Example:
        >>> root_of("self.model.head.weight"), root_of("batches[0]"), root_of("x")
        ('self', 'batches', 'x')
        >>> root_of("fit().state['model']"), root_of("pack.helper:average[0]"), root_of("helper:Meter.average")
        ('fit().state', 'pack.helper:average', 'helper:Meter')
    """
    module, of_module, rest = path.partition(":")
    if of_module and all(part.isidentifier() for part in module.split(".")):
        return f"{module}:{_first_word(rest)}"
    frame, outer, rest = path.partition("().")
    if not outer or not frame.isidentifier():
        frame, outer, rest = "", "", path
    return f"{frame}{outer}{_first_word(rest)}"


def _first_word(rest: str) -> str:
    ends = [at for at in (rest.find("."), rest.find("[")) if at > 0]
    return rest[: min(ends)] if ends else rest


PathLeaves = Mapping[str, Leaf]
"""Path to leaf."""


def differing(left: Mapping[str, Leaf], right: Mapping[str, Leaf]) -> list[str]:
    """Return the paths in which two sets of leaves differ, in no fixed order.

    Args:
        left: Path to leaf.
        right: The same of the other; a path that one of them lacks differs.
    """
    return [path for path in {*left, *right} if path not in left or not left[path].same(right.get(path))]
