"""A pickle read as a tree, with nothing executed: classes and functions become `Opaque` unless a reader knows them.

Python's own unpickler imports what a file names. This one is a machine of the same opcodes, whose globals are names
and whose calls are answered by a table; what the table lacks stays an inert record of its arguments.

Source: the opcodes as `pickletools` documents them, protocols 0 to 5, Python 3.11 to 3.14.
"""

from __future__ import annotations

import io
import pickletools
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parity.errors import CheckpointError
from parity.formats.bounds import Work, require_bounded
from parity.formats.tree import Opaque

__all__ = ["PLAIN_CALLS", "Built", "Call", "Global", "Made", "read_pickle"]

MOST_BYTES = 1 << 30
"""Longest pickle that is walked; the arrays of a `torch.save` file are outside its own."""

MOST_OPCODES = 800_000
"""Most opcodes of a pickle besides those of its tensors: a second of work."""

OPCODES_OF_A_TENSOR = 64
"""Opcodes that a tensor takes at most, with its storage, its name and its place in an optimizer; about 40."""

MOST_KEY = 16
"""Most parts of a key that is a tuple."""

MOST_NUMBER = 4096
"""Longest integer in bytes: a pickle may spell one of gigabytes."""

Call = Callable[..., Any]


@dataclass(frozen=True)
class Global:
    """A name that a pickle asks for; nothing is imported."""

    name: str


@dataclass
class Made:
    """A call that the table does not answer: an object that later opcodes may give attributes and items."""

    name: str
    content: list[Any]


Built = Callable[[Made, io.BytesIO], Any]


class _Mark:
    pass


def _counter(counts: Any = None) -> Any:
    """Return the counts, as `MultiStepLR` keeps its milestones; only of a dict of integers, as a pickle has them."""
    if isinstance(counts, dict) and all(type(n) is int for n in counts.values()):
        return Counter(counts)
    return Opaque("collections.Counter", counts)


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    """Return a dict of another, or of pairs, its keys text and integers as everywhere."""
    found = pairs.items() if isinstance(pairs, dict) else pairs
    return {_as_key(key): value for key, value in found}


def _path(*parts: str) -> str:
    """Return a path as text; a call of its own result, again and again, would double it."""
    if sum(map(len, parts)) > MOST_NUMBER:
        raise ValueError("a path is longer than any")
    return posixpath.join(*parts)


PLAIN_CALLS: Mapping[str, Call] = {
    "collections.OrderedDict": lambda *pairs: _dict(*pairs),
    "collections.Counter": _counter,
    "collections.defaultdict": lambda factory=None, *pairs: _dict(*pairs),
    "builtins.dict": lambda *pairs: _dict(*pairs),
    "builtins.list": list,
    "builtins.tuple": tuple,
    "builtins.complex": complex,
    "__builtin__.complex": complex,
    "builtins.set": lambda items=(): Opaque("builtins.set", list(items)),
    "__builtin__.set": lambda items=(): Opaque("builtins.set", list(items)),
    "_codecs.encode": lambda text, encoding="latin1": text.encode(encoding) if encoding == "latin1" else text,
    "pathlib.PosixPath": lambda *parts: _path(*parts),
    "pathlib._local.PosixPath": lambda *parts: _path(*parts),
}
"""Calls that every reader answers: containers and values of the standard library."""


def read_pickle(
    data: bytes,
    where: str,
    calls: Mapping[str, Call] = PLAIN_CALLS,
    persistent: Callable[[Any], Any] | None = None,
    end: Callable[[int], None] | None = None,
    tensors: int = 0,
    built: Built | None = None,
) -> Any:
    """Return the tree that a pickle describes.

    Args:
        data: The pickle; what follows it is ignored.
        where: The file, for messages.
        calls: Dotted name of a class or function to what stands in for its call.
        persistent: Takes a persistent id and returns what it stands for.
        end: Takes the offset of the first byte after the pickle.
        tensors: How many tensors the pickle may describe: as many as there are storages beside it.
        built: Takes each object that was given its attributes, and what follows in the stream; returns what stands
            for the object. For formats that put bytes behind an object of the pickle.

    Raises:
        CheckpointError: It is no pickle, is larger than any state needs, or uses what only code could answer, such as
            an object from an extension registry.
    """
    if len(data) > MOST_BYTES:
        raise CheckpointError(f"{where}: the pickle has {len(data):,} bytes, more than {MOST_BYTES:,}")
    stream = io.BytesIO(data)
    machine = _Machine(where, calls, persistent)
    most = MOST_OPCODES + OPCODES_OF_A_TENSOR * tensors
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(stream)):
            if count > most:
                raise CheckpointError(
                    f"{where}: the pickle has more than {most:,} opcodes; no training state needs so many"
                )
            if opcode.name == "STOP":
                if end:
                    end((position or 0) + 1)
                tree = _plain(machine.pop(), {})
                require_bounded(tree, where, tensors)
                return tree
            machine.run(opcode.name, argument)
            if built and opcode.name == "BUILD" and isinstance(made := machine.stack[-1], Made):
                machine.replace(built(made, stream))
    except CheckpointError as error:
        if str(error).startswith(where):
            raise
        raise CheckpointError(f"{where}: {error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{where}: the pickle is nested too deeply, or an object holds itself") from error
    except Exception as error:  # a hostile stream may fail anywhere in genops or in a stand-in
        raise CheckpointError(f"{where} is no pickle that can be read: {type(error).__name__}: {error}") from error
    raise CheckpointError(f"{where} is no pickle: it has no end")


class _Machine:
    """The stack and the memo; one method for each group of opcodes."""

    def __init__(self, where: str, calls: Mapping[str, Call], persistent: Callable[[Any], Any] | None) -> None:
        self.where, self.calls, self.persistent = where, calls, persistent
        self.work = Work()
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _Mark:
            raise ValueError("a mark stands where a value should")
        return value

    def replace(self, value: Any) -> None:
        """Let another value stand for the last one, where later opcodes take it from the memo too."""
        old, self.stack[-1] = self.stack[-1], value
        self.memo |= {key: value for key, held in self.memo.items() if held is old and held is not value}

    def pop_mark(self) -> list[Any]:
        at = next((at for at in range(len(self.stack) - 1, -1, -1) if self.stack[at] is _Mark), None)
        if at is None:
            raise ValueError("a mark is missing")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def run(self, name: str, argument: Any) -> None:
        """Execute one opcode.

        Raises:
            CheckpointError: Only code could answer it.
        """
        stack = self.stack
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            if type(argument) is int and argument.bit_length() > 8 * MOST_NUMBER:
                raise ValueError("an integer is longer than any count")
            stack.append(argument)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[int(argument)])
        elif name == "MARK":
            stack.append(_Mark)
        elif name in ("PROTO", "FRAME"):
            pass
        elif name in _BUILDERS:
            _BUILDERS[name](self)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self._global(argument)
        else:
            operation = getattr(self, f"_op_{name.lower()}", None)
            if operation is None:
                raise CheckpointError(f"{self.where}: the pickle uses {name}, which only code could answer")
            operation(argument)

    def _global(self, argument: Any) -> None:
        if argument is None:
            attribute, module = self.pop(), self.pop()
        else:
            module, _, attribute = str(argument).partition(" ")
        if not (isinstance(module, str) and isinstance(attribute, str)):
            raise ValueError("a global whose name is no text")
        self.stack.append(Global(f"{module}.{attribute}"))

    def _op_persid(self, argument: Any) -> None:
        self.stack.append(argument)
        self._op_binpersid(None)

    def _op_binpersid(self, argument: Any) -> None:
        found = self.pop()
        if self.persistent is None:
            raise CheckpointError(
                f"{self.where}: the pickle refers to objects outside of it, and this format has none"
            )
        self.stack.append(self.persistent(found))

    def call(self, function: Any, args: Any, **named: Any) -> None:
        name = function.name if isinstance(function, Global) else None
        if name is None or not isinstance(args, tuple):
            raise ValueError(f"a call of a {type(function).__name__}")
        self.work.add(args)
        if name in self.calls and not named:
            self.stack.append(self.calls[name](*args))
        elif name == "copyreg._reconstructor" and args and isinstance(args[0], Global):
            self.stack.append(Made(args[0].name, [x for x in args[2:] if x is not None]))
        else:
            self.stack.append(Made(name, [*args, *([named] if named else [])]))

    def _op_reduce(self, argument: Any) -> None:
        args = self.pop()
        self.call(self.pop(), args)

    _op_newobj = _op_reduce

    def _op_newobj_ex(self, argument: Any) -> None:
        named, args = self.pop(), self.pop()
        self.call(self.pop(), args, **named)

    def _op_inst(self, argument: Any) -> None:
        module, _, attribute = str(argument).partition(" ")
        self.call(Global(f"{module}.{attribute}"), tuple(self.pop_mark()))

    def _op_obj(self, argument: Any) -> None:
        function, *args = self.pop_mark()
        self.call(function, tuple(args))

    def _op_build(self, argument: Any) -> None:
        state, target = self.pop(), self.stack[-1]
        self.work.add((state,))
        if isinstance(target, Made):
            target.content.append(state)
        elif hasattr(target, "set_state"):
            target.set_state(state)
        elif not isinstance(
            target, dict
        ):  # attributes of a dict, such as `_metadata` of a state dict, are no content
            raise ValueError(f"attributes of a {type(target).__name__}")


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target, pairs = machine.stack[-1], _pairs(items)
    if isinstance(target, Made):
        target.content.append([list(pair) for pair in pairs])
        return
    for key, value in pairs:
        target[_as_key(key)] = value


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items[::2], items[1::2], strict=True))


def _as_key(key: Any) -> str | int:
    """Return a key of a tree: text and integers as they are, others as text.

    Raises:
        ValueError: It is a container of more than a few values: their text, or hash, might never end.
    """
    if isinstance(key, str | int) and type(key) is not bool:
        return key
    if isinstance(key, tuple):
        if len(key) > MOST_KEY or any(isinstance(part, dict | list | tuple | Made) for part in key):
            raise ValueError("a key is a container of containers")
        return str(tuple(part.name if isinstance(part, Global) else part for part in key))
    if isinstance(key, dict | list | Made):
        raise ValueError(f"a key is a {type(key).__name__}")
    return str(key.name if isinstance(key, Global) else key)


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    (target.content if isinstance(target, Made) else target).extend(items)


def _last(machine: _Machine, count: int) -> list[Any]:
    return [machine.pop() for _ in range(count)][::-1]


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING"),
    *("SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
    *("BINBYTES8", "BYTEARRAY8"),
}
_EMPTY: Mapping[str, Call] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": lambda: Made("builtins.set", []),
}
_BUILDERS: Mapping[str, Callable[[_Machine], object]] = {
    "POP": lambda m: m.stack.pop(),
    "POP_MARK": lambda m: m.pop_mark(),
    "DUP": lambda m: m.stack.append(m.stack[-1]),
    "DICT": lambda m: m.stack.append(_dict(_pairs(m.pop_mark()))),
    "LIST": lambda m: m.stack.append(m.pop_mark()),
    "TUPLE": lambda m: m.stack.append(tuple(m.pop_mark())),
    "TUPLE1": lambda m: m.stack.append(tuple(_last(m, 1))),
    "TUPLE2": lambda m: m.stack.append(tuple(_last(m, 2))),
    "TUPLE3": lambda m: m.stack.append(tuple(_last(m, 3))),
    "FROZENSET": lambda m: m.stack.append(Made("builtins.frozenset", m.pop_mark())),
    "SETITEM": lambda m: _set_items(m, _last(m, 2)),
    "SETITEMS": lambda m: _set_items(m, m.pop_mark()),
    "APPEND": lambda m: _append(m, _last(m, 1)),
    "APPENDS": lambda m: _append(m, m.pop_mark()),
    "ADDITEMS": lambda m: _append(m, m.pop_mark()),
}


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """Return a value with the machine's own records replaced by `Opaque`, shared containers walked once."""
    if isinstance(value, Global):
        return Opaque(value.name)
    if id(value) in seen:
        found = seen[id(value)]
        if found is _Mark:
            raise CheckpointError("a container of the pickle holds itself")
        return found
    if isinstance(value, bytearray):
        return bytes(value)
    if not isinstance(value, dict | list | tuple | Made):
        return value
    seen[id(value)] = _Mark
    made: Any
    if isinstance(value, Made):
        content = _plain(value.content[0] if len(value.content) == 1 else value.content, seen)
        made = Opaque(value.name, content)
    elif isinstance(value, dict):
        made = {key: _plain(child, seen) for key, child in value.items()}
        made = Counter(made) if isinstance(value, Counter) else made
    else:
        made = [_plain(child, seen) for child in value]
        made = tuple(made) if isinstance(value, tuple) else made
    seen[id(value)] = made
    return made
