"""Liveness of local variables: which ones the code may still read, at one instruction of a function.

A value that is written before it is read is lost without loss. Read from the byte code, so that it holds for every
form of loop and needs no source: a backward data-flow analysis over the instructions. Paths through exceptions do
not count: every `with` could suppress one, and then nothing that is assigned in it is written before it is read.
Those through the `except` clauses of a `try` are asked for by themselves: `try: limit = plan[n]`, `except KeyError:`.
So are those behind `with suppress(KeyError):`, which is the same, and what code reads that is in a text.
"""

from __future__ import annotations

import dis
import functools
import re
from types import CodeType

__all__ = ["live_names"]

_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"})
_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE", "JUMP"})
_PART = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|DEREF|CLOSURE)")
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Inner functions that end where they stand: before Python 3.12 each comprehension is one."""


def live_names(code: CodeType, lasti: int, *, clauses: bool = False) -> frozenset[str]:
    """Return the local variables that may be read after an instruction.

    Args:
        code: Code of the function or module.
        lasti: Offset of the instruction that runs, in bytes (`frame.f_lasti`).
        clauses: Whether each statement of a `try` may be left for its `except` clauses, and `locals()`, `eval` and
            `exec` read all variables.

    Returns:
        Their names; those that inner functions share are always among them, unless all of these are comprehensions.
    """
    if clauses and _reads_all(code):
        return frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    at = _live_after(code, clauses)
    while lasti not in at and lasti > 0:  # within a call, Python 3.11 gives the place behind it, among its caches
        lasti -= 2
    return (
        at.get(lasti, frozenset((*code.co_varnames, *code.co_cellvars))) | _shared(code) | frozenset(code.co_freevars)
    )


@functools.lru_cache(maxsize=256)
def _reads_all(code: CodeType) -> bool:
    """Return whether a function names what reads variables by texts: `"{kv:.6f}".format(**locals())`."""
    taken = (one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return any(name in ("locals", "eval", "exec") for name in taken)


@functools.lru_cache(maxsize=256)
def _shared(code: CodeType) -> frozenset[str]:
    """Return the variables of a function that inner functions may read after they were made."""
    found: set[str] = set()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            outlives = inner.co_name not in _COMPREHENSIONS
            found |= set(inner.co_freevars) if outlives else _shared(inner) & set(inner.co_freevars)
    return frozenset(found)


@functools.lru_cache(maxsize=256)
def _live_after(code: CodeType, clauses: bool) -> dict[int, frozenset[str]]:
    """Return, for every instruction, the variables that are live after it."""
    found = list(dis.Bytecode(code))
    index = {instruction.offset: at for at, instruction in enumerate(found)}
    handlers = _clauses(code, found, index) if clauses else {}
    steps = []
    for at, instruction in enumerate(found):
        follows = set(handlers.get(at, ()))
        jumps = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if jumps and instruction.argval in index:
            follows.add(index[instruction.argval])
        if instruction.opname not in _ENDS | _JUMPS and at + 1 < len(found):
            follows.add(at + 1)
        steps.append((follows, _effects(instruction)))
    before: list[frozenset[str]] = [frozenset()] * len(found)
    changed = True
    while changed:
        changed = False
        for at in range(len(found) - 1, -1, -1):
            follows, effects = steps[at]
            live = set().union(*(before[next_at] for next_at in follows)) if follows else set()
            for name, reads in reversed(effects):
                (live.add if reads else live.discard)(name)
            if live != before[at]:
                before[at], changed = frozenset(live), True
    return {
        instruction.offset: frozenset().union(*(before[next_at] for next_at in steps[at][0]))
        for at, instruction in enumerate(found)
    }


def _clauses(code: CodeType, found: list[dis.Instruction], index: dict[int, int]) -> dict[int, set[int]]:
    """Return, by the place of an instruction, where the `except` clauses begin that take what it raises."""
    handlers: dict[int, set[int]] = {}
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        target = index.get(entry.target)
        if target is None:
            continue
        if any(one.opname == "WITH_EXCEPT_START" for one in found[target : target + 3]) and not _suppresses(
            found, index[entry.start]
        ):
            continue
        for at in range(index[entry.start], len(found)):
            if found[at].offset >= entry.end:
                break
            handlers.setdefault(at, set()).add(target)
    return handlers


def _suppresses(found: list[dis.Instruction], start: int) -> bool:
    """Return whether the `with` whose body begins at an instruction is `suppress(...)` of Python's contextlib.

    It stands between the last instruction that ends a statement and the one that enters the `with`.
    """
    for one in reversed(found[max(start - 40, 0) : start]):
        if one.opname.startswith(("STORE_", "RESUME", "RETURN_", "POP_")):
            return False
        if one.argval == "suppress":
            return True
    return False


def _effects(instruction: dis.Instruction) -> list[tuple[str, bool]]:
    """Return what an instruction does to local variables, in order: (name, whether it is read)."""
    parts = [match[1] for match in _PART.finditer(instruction.opname)]
    if not parts or instruction.argval is None or "AND_CLEAR" in instruction.opname:
        return []  # a comprehension puts aside the outer variable of the same name
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    if len(names) != len(parts):
        return [(str(name), True) for name in names]
    return [(str(name), part == "LOAD") for name, part in zip(names, parts, strict=True)]
