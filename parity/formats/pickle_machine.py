"""The machine of a pickle: a stack, a memo, and an act for each opcode, none of which imports or executes anything.

A file of 100,000 tensors has three million opcodes, so each is one call from a table by its byte. What tensors are
made of is read right here; the arguments of all else are read as `pickletools` reads them.

Source: the opcodes as `pickletools` documents them, protocols 0 to 5, Python 3.11 to 3.14.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Callable, Mapping
from typing import Any

from parity.errors import CheckpointError
from parity.formats.bounds import Work
from parity.formats.pickle_values import Global, Made, fill

__all__ = ["Built", "Function", "Machine"]

MOST_NUMBER = 1700
"""Longest integer in bytes: a pickle may spell one of gigabytes, and Python prints none of more than 4,300 digits."""

Function = Callable[..., Any]


Built = Callable[[Made, io.BytesIO], Any]
"""Takes an object that was given its attributes, and the stream behind it; returns what stands for the object."""


class Machine:
    """A machine that runs one pickle."""

    __slots__ = ("above", "built", "calls", "changed_keys", "file", "memo", "persistent", "stack", "where", "work")

    def __init__(
        self,
        where: str,
        calls: Mapping[str, Function],
        persistent: Callable[[Any], Any] | None,
        built: Built | None = None,
    ) -> None:
        """Take what stands in for calls.

        Args:
            where: The file, for messages.
            calls: Dotted name of a class or function to what stands in for its call.
            persistent: Takes a persistent id and returns what it stands for.
            built: For formats that put bytes behind an object of the pickle.
        """
        self.where, self.calls, self.persistent, self.built = where, calls, persistent, built
        self.work = Work()
        self.changed_keys = 0
        """Keys of dicts that were neither text nor integers."""
        self.stack: list[Any] = []
        self.above: list[list[Any]] = []
        """The stacks below each mark."""
        self.memo: dict[int, Any] = {}
        self.file = io.BytesIO()

    def run(self, data: bytes, most: int) -> tuple[Any, int] | None:
        """Run a pickle to its end.

        Args:
            data: The pickle; what follows it is ignored.
            most: Most opcodes.

        Returns:
            What lies on the stack, and the offset of the first byte after the pickle; None if it has more opcodes.

        Raises:
            CheckpointError: Only code could answer an opcode.
            Exception: The stream is none; a hostile one may fail in any way.
        """
        self.file = io.BytesIO(data)
        at, plain, argued, memo = 0, _PLAIN, _ARGUED, self.memo
        try:
            for _ in range(most):
                opcode = data[at]
                if opcode == _LONG_BINPUT:  # this and the next two are most of what there is
                    memo[_four(data, at + 1)[0]] = self.stack[-1]
                    at += 5
                elif opcode == _BININT1:
                    self.stack.append(data[at + 1])
                    at += 2
                elif opcode == _BINGET:
                    self.stack.append(memo[data[at + 1]])
                    at += 2
                elif (act := plain[opcode]) is not None:
                    act(self)
                    at += 1
                elif opcode != _STOP:
                    at = argued[opcode](self, data, at + 1)
                else:
                    return self.pop(), at + 1
        except IndexError:
            if at >= len(data):
                raise ValueError("it has no end") from None
            raise
        return None

    def pop(self) -> Any:
        """Return the value on top of the stack."""
        if not self.stack:
            raise ValueError("a value is missing, or a mark stands in its place")
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        """Return the values above the last mark."""
        if not self.above:
            raise ValueError("a mark is missing")
        items, self.stack = self.stack, self.above.pop()
        return items

    def replace(self, value: Any) -> None:
        """Let another value stand for the last one, where later opcodes take it from the memo too."""
        old, self.stack[-1] = self.stack[-1], value
        self.memo.update({key: value for key, held in self.memo.items() if held is old and held is not value})

    def refer(self, found: Any) -> None:
        """Put what a persistent id stands for on the stack."""
        if self.persistent is None:
            raise CheckpointError(
                f"{self.where}: the pickle refers to objects outside of it, and this format has none"
            )
        self.stack.append(self.persistent(found))

    def call(self, function: Any, args: Any, **named: Any) -> None:
        """Put what stands in for a call on the stack, or a record of it."""
        name = function.name if isinstance(function, Global | Made) else None
        if name is None or not isinstance(args, tuple):
            raise ValueError(f"a call of a {type(function).__name__}")
        self.work.add(args)
        if isinstance(function, Made):  # what a call returned, such as a method that getattr found, is called
            self.stack.append(Made(name, [function, *args, *([named] if named else [])]))
            return
        if name in self.calls and not named:
            self.stack.append(self.calls[name](*args))
        elif name == "copyreg._reconstructor" and args and isinstance(args[0], Global):
            self.stack.append(Made(args[0].name, [x for x in args[2:] if x is not None]))
        else:
            self.stack.append(Made(name, [*args, *([named] if named else [])]))


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items[::2], items[1::2], strict=True))


def _set_items(machine: Machine, items: list[Any]) -> None:
    target, pairs = machine.stack[-1], _pairs(items)
    if isinstance(target, Made):
        target.content.append([list(pair) for pair in pairs])
        return
    machine.changed_keys += fill(target, pairs)


def _append(machine: Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    (target.content if isinstance(target, Made) else target).extend(items)


def _last(machine: Machine, count: int) -> list[Any]:
    return [machine.pop() for _ in range(count)][::-1]


def _mark(machine: Machine) -> None:
    machine.above.append(machine.stack)
    machine.stack = []


def _dict(machine: Machine) -> None:
    made: dict[Any, Any] = {}
    machine.changed_keys += fill(made, _pairs(machine.pop_mark()))
    machine.stack.append(made)


def _tuple(machine: Machine) -> None:
    items = tuple(machine.pop_mark())
    machine.stack.append(items)


def _pair(machine: Machine) -> None:
    last = machine.stack.pop()
    machine.stack[-1] = (machine.stack[-1], last)


def _reduce(machine: Machine) -> None:
    args = machine.pop()
    machine.call(machine.pop(), args)


def _new_object(machine: Machine) -> None:
    named, args = machine.pop(), machine.pop()
    machine.call(machine.pop(), args, **named)


def _object(machine: Machine) -> None:
    function, *args = machine.pop_mark()
    machine.call(function, tuple(args))


def _build(machine: Machine, data: bytes, at: int) -> int:
    state, target = machine.pop(), machine.stack[-1]
    machine.work.add((state,))
    if isinstance(target, Made):
        target.content.append(state)
    elif hasattr(target, "set_state"):
        target.set_state(state)
    elif not isinstance(target, dict):  # attributes of a dict, such as `_metadata` of a state dict, are no content
        raise ValueError(f"attributes of a {type(target).__name__}")
    if machine.built is None or not isinstance(target, Made):
        return at
    machine.file.seek(at)
    machine.replace(machine.built(target, machine.file))
    return machine.file.tell()


def _stack_global(machine: Machine) -> None:
    attribute, module = machine.pop(), machine.pop()
    if not (isinstance(module, str) and isinstance(attribute, str)):
        raise ValueError("a global whose name is no text")
    machine.stack.append(Global(f"{module}.{attribute}"))


_ACTS: Mapping[str, Callable[[Machine], object]] = {
    "NONE": lambda m: m.stack.append(None),
    "NEWTRUE": lambda m: m.stack.append(True),
    "NEWFALSE": lambda m: m.stack.append(False),
    "EMPTY_DICT": lambda m: m.stack.append({}),
    "EMPTY_LIST": lambda m: m.stack.append([]),
    "EMPTY_TUPLE": lambda m: m.stack.append(()),
    "EMPTY_SET": lambda m: m.stack.append(Made("builtins.set", [])),
    "MEMOIZE": lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "MARK": _mark,
    "POP": lambda m: m.stack.pop() if m.stack else m.pop_mark(),
    "POP_MARK": lambda m: m.pop_mark(),
    "DUP": lambda m: m.stack.append(m.stack[-1]),
    "DICT": _dict,
    "LIST": lambda m: _onto(m, m.pop_mark()),
    "TUPLE": _tuple,
    "TUPLE1": lambda m: m.stack.append(tuple(_last(m, 1))),
    "TUPLE2": _pair,
    "TUPLE3": lambda m: m.stack.append(tuple(_last(m, 3))),
    "FROZENSET": lambda m: _onto(m, Made("builtins.frozenset", m.pop_mark())),
    "SETITEM": lambda m: _set_items(m, _last(m, 2)),
    "SETITEMS": lambda m: _set_items(m, m.pop_mark()),
    "APPEND": lambda m: _append(m, _last(m, 1)),
    "APPENDS": lambda m: _append(m, m.pop_mark()),
    "ADDITEMS": lambda m: _append(m, m.pop_mark()),
    "STACK_GLOBAL": _stack_global,
    "BINPERSID": lambda m: m.refer(m.pop()),
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _new_object,
    "OBJ": _object,
}
"""Acts of the opcodes without an argument."""


def _onto(machine: Machine, value: Any) -> None:
    """Put a value on the stack, which is another one since the mark was popped for it."""
    machine.stack.append(value)


def _literal(machine: Machine, value: Any) -> None:
    if type(value) is int and value.bit_length() > 8 * MOST_NUMBER:
        raise ValueError("an integer is longer than any count")
    machine.stack.append(value)


def _named(text: str) -> Global:
    module, _, attribute = text.partition(" ")
    return Global(f"{module}.{attribute}")


_ACTS_WITH: Mapping[str, Callable[[Machine, Any], object]] = {
    **dict.fromkeys(
        [
            *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING"),
            *("BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
            *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        ],
        _literal,
    ),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda m, at: m.memo.__setitem__(int(at), m.stack[-1])),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, at: m.stack.append(m.memo[int(at)])),
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, _: None),
    "GLOBAL": lambda m, text: m.stack.append(_named(str(text))),
    "INST": lambda m, text: m.call(_named(str(text)), tuple(m.pop_mark())),
    "PERSID": lambda m, text: m.refer(text),
}
"""Acts of those with one."""

_Handler = Callable[[Machine, bytes, int], int]
"""Takes the machine, the pickle, and the offset behind the opcode; returns that of the next one."""

_four = struct.Struct("<I").unpack_from
_signed = struct.Struct("<i").unpack_from


def _text(machine: Machine, data: bytes, at: int) -> int:
    end = at + 4 + _four(data, at)[0]
    if end > len(data):
        raise ValueError("a text reaches beyond the end")
    machine.stack.append(data[at + 4 : end].decode("utf-8", "surrogatepass"))
    return int(end)


def _put(machine: Machine, data: bytes, at: int) -> int:
    machine.memo[data[at]] = machine.stack[-1]
    return at + 1


def _get_four(machine: Machine, data: bytes, at: int) -> int:
    machine.stack.append(machine.memo[_four(data, at)[0]])
    return at + 4


def _integer(machine: Machine, data: bytes, at: int) -> int:
    machine.stack.append(_signed(data, at)[0])
    return at + 4


_QUICK: Mapping[str, _Handler] = {
    **{"BINUNICODE": _text, "BINPUT": _put, "LONG_BINGET": _get_four, "BININT": _integer},
    "BUILD": _build,
}
"""Those that every tensor of `torch.save` has, and the one behind which bytes may follow."""


def _handler(opcode: pickletools.OpcodeInfo) -> _Handler:
    """Return what runs an opcode that has an argument, or is refused."""
    name = opcode.name
    if name in _QUICK:
        return _QUICK[name]
    if name in _ACTS_WITH and opcode.arg is not None:
        take, read = _ACTS_WITH[name], opcode.arg.reader

        def argued(machine: Machine, data: bytes, at: int) -> int:
            machine.file.seek(at)
            take(machine, read(machine.file))
            return machine.file.tell()

        return argued

    def refuse(machine: Machine, data: bytes, at: int) -> int:
        raise CheckpointError(f"{machine.where}: the pickle uses {name}, which only code could answer")

    return refuse


def _unknown(machine: Machine, data: bytes, at: int) -> int:
    raise ValueError(f"at {at - 1}, the opcode {data[at - 1 : at]!r} is unknown")


_STOP, _LONG_BINPUT, _BININT1, _BINGET = b".rKh"
_KNOWN = {ord(opcode.code): _handler(opcode) for opcode in pickletools.opcodes}
_ARGUED = [_KNOWN.get(byte, _unknown) for byte in range(256)]
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_PLAIN = [_ACTS.get(_NAMES.get(byte, "")) for byte in range(256)]
