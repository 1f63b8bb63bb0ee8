"""Bytes that are one pickle, compared by what they hold.

What is pickled twice differs in its bytes where its parts are one object in one and equal ones in the other: names
of attributes, and the dtypes of arrays, that came out of a pickle themselves. So a best model that a trainer keeps as
bytes differs after a resume that lost nothing. Nothing is imported or called here: opcodes are read, and what each
takes from the stack.

Source: the opcodes and their effects as `pickletools` lists them, Python 3.11 to 3.14.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from parity.capture.arrays import digest_of

__all__ = ["digest_of_pickle"]

MOST_BYTES = 2 << 20
MOST_OPCODES = 200_000
"""Above which bytes are compared as they are: each opcode takes microseconds, at every mark."""

_INTO = frozenset(("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"))
"""Opcodes that put what they take into the object below it, which may be known by its number already."""

_STORED = frozenset(("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"))
_TAKEN = frozenset(("GET", "BINGET", "LONG_BINGET"))
_SETS = frozenset(("EMPTY_SET None", "FROZENSET None"))
_SET_TYPES = frozenset(
    f"GLOBAL '{module} {name}'" for module in ("builtins", "__builtin__") for name in ("set", "frozenset")
)
_SILENT = frozenset(("PROTO", "FRAME", "STOP"))


class _PickledPart:
    """What one opcode makes: its name, its argument, and what it takes or is given later."""

    __slots__ = ("parts", "word")

    def __init__(self, word: str, parts: list[_PickledPart]) -> None:
        self.word, self.parts = word, parts


_MARK = _PickledPart("MARK", [])


@lru_cache(maxsize=16)  # the same bytes are met at each mark
def digest_of_pickle(data: bytes) -> str | None:
    """Return a digest of what a pickle holds, the same whichever equal parts are one object; None of other bytes.

    Args:
        data: Bytes that may be one pickle of protocol 2 or later.
    """
    if data[:1] != b"\x80" or data[-1:] != b"." or len(data) > MOST_BYTES:
        return None
    try:
        whole = _read(data)
        return None if whole is None else _digest(whole)
    except Exception:  # pickletools has no error of its own, and what is no pickle may look like anything
        return None


def _read(data: bytes) -> _PickledPart | None:
    stack: list[_PickledPart] = []
    memo: dict[int, _PickledPart] = {}
    end = 0
    for count, (opcode, argument, at) in enumerate(pickletools.genops(data)):
        name, end = opcode.name, at or 0
        if count > MOST_OPCODES:
            return None
        if name in _SILENT:
            continue
        if name in _STORED:
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in _TAKEN:
            stack.append(memo[int(argument or 0)])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("POP", "POP_MARK", "DUP"):
            return None  # of a recursive tuple: its bytes count
        else:
            taken = _take(stack, opcode)
            if name in _INTO:
                target, *parts = taken
                target.parts += [*parts, _PickledPart(name, [])] if name == "BUILD" else parts
                stack.append(target)
            else:
                stack.append(_PickledPart(_word(name, argument), taken))
    return stack[0] if len(stack) == 1 and end == len(data) - 1 else None


def _take(stack: list[_PickledPart], opcode: pickletools.OpcodeInfo) -> list[_PickledPart]:
    """Take from a stack what an opcode takes, in the order in which it was put there."""
    wanted = opcode.stack_before
    if pickletools.markobject in wanted:
        at = max(at for at, one in enumerate(stack) if one is _MARK)
        below = wanted.index(pickletools.markobject)
        taken = [*stack[at - below : at], *stack[at + 1 :]]
        del stack[at - below :]
        return taken
    taken = stack[len(stack) - len(wanted) :]
    del stack[len(stack) - len(wanted) :]
    return taken


def _word(name: str, argument: Any) -> str:
    """Return what an opcode is: of text, bytes and numbers themselves, in whatever form they are written."""
    if argument is None or name in ("GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID"):
        return f"{name} {argument!r}"
    return f"{type(argument).__name__} {argument!r}"


def _digest(whole: _PickledPart) -> str:
    """Return the digest of a node by those of its parts, each made once; what holds itself is told by its depth."""
    made: dict[int, str] = {}
    depth = 0
    waiting = [(whole, False)]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            depth -= 1
            text = "\n".join([node.word, *_told(node, made)])
            made[id(node)] = digest_of(text.encode("utf-8", "surrogatepass"))
        elif id(node) not in made:
            made[id(node)] = f"itself {depth}"  # until it is made: only what it holds asks for it
            depth += 1
            waiting.append((node, True))
            waiting += [(part, False) for part in node.parts]
    return made[id(whole)]


def _told(node: _PickledPart, made: Mapping[int, str]) -> list[str]:
    """Return the digests of the parts of a node; of a set in an order of their own.

    In which order a set gives its members depends on that in which they came, which a pickle turns round.
    """
    told = [made[id(part)] for part in node.parts]
    if node.word in _SETS:
        return sorted(told)
    if node.word == "REDUCE None" and len(node.parts) == 2 and node.parts[0].word in _SET_TYPES:  # before protocol 4
        given = node.parts[1].parts
        if len(given) == 1 and given[0].word == "EMPTY_LIST None":
            return [told[0], *sorted(made[id(part)] for part in given[0].parts)]
    return told
