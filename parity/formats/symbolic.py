"""A pickle read as a tree, with nothing executed: classes and functions become `Opaque` unless a reader knows them.

Python's own unpickler imports what a file names. This one is a machine of the same opcodes, whose globals are names
and whose calls are answered by a table; what the table lacks stays an inert record of its arguments.

Source: the opcodes as `pickletools` documents them, protocols 0 to 5, Python 3.11 to 3.14.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from parity.errors import CheckpointError
from parity.formats.bounds import require_bounded
from parity.formats.pickle_machine import Built, Function, Machine
from parity.formats.pickle_values import Completed, Global, Made, Outside, as_dict
from parity.formats.tree import Opaque

__all__ = ["PLAIN_CALLS", "Built", "Function", "Global", "Made", "Outside", "read_pickle", "run_pickle"]

MOST_BYTES = 1 << 30
"""Longest pickle that is walked; the arrays of a `torch.save` file are outside its own."""

MOST_OPCODES = 800_000
"""Most opcodes of a pickle besides those of its tensors: a second of work."""

OPCODES_OF_A_TENSOR = 64
"""Opcodes that a tensor takes at most, with its storage, its name and its place in an optimizer; about 40."""

PARTS = (dict, list, tuple, Made, Completed, Opaque)

_PENDING = object()
"""Stands for a container whose content is being looked at."""

MOST_PATH = 4096
"""Longest path in characters."""


def _counter(counts: Any = None) -> Any:
    """Return the counts, as `MultiStepLR` keeps its milestones; only of a dict of integers, as a pickle has them."""
    if isinstance(counts, dict) and all(type(n) is int for n in counts.values()):
        return Counter(counts)
    return Opaque("collections.Counter", counts)


def _bytes(*args: Any) -> Any:
    """Return what the protocols before 3 call for bytes: nothing, or text in latin-1; a count would be of zeros."""
    if not args:
        return b""
    if len(args) == 1 and isinstance(args[0], bytes | bytearray):
        return bytes(args[0])
    if len(args) == 2 and isinstance(args[0], str) and args[1] in ("latin-1", "latin1"):
        return args[0].encode("latin1")
    return Opaque("builtins.bytes", list(args))


def _path(*parts: str) -> str:
    """Return a path as text; a call of its own result, again and again, would double it."""
    if sum(map(len, parts)) > MOST_PATH:
        raise ValueError("a path is longer than any")
    return posixpath.join(*parts)


PLAIN_CALLS: Mapping[str, Function] = {
    "collections.OrderedDict": lambda *pairs: as_dict(*pairs),
    "collections.Counter": _counter,
    "collections.defaultdict": lambda factory=None, *pairs: as_dict(*pairs),
    "builtins.dict": lambda *pairs: as_dict(*pairs),
    "builtins.list": list,
    "builtins.tuple": tuple,
    "builtins.complex": complex,
    "__builtin__.complex": complex,
    "builtins.set": lambda items=(): Opaque("builtins.set", list(items)),
    "__builtin__.set": lambda items=(): Opaque("builtins.set", list(items)),
    **{f"{module}.{name}": _bytes for module in ("builtins", "__builtin__") for name in ("bytes", "bytearray")},
    "_codecs.encode": lambda text, encoding="latin1": text.encode(encoding) if encoding == "latin1" else text,
    "pathlib.PosixPath": lambda *parts: _path(*parts),
    "pathlib._local.PosixPath": lambda *parts: _path(*parts),
}
"""Calls that every reader answers: containers and values of the standard library."""


def read_pickle(
    data: bytes,
    where: str,
    calls: Mapping[str, Function] = PLAIN_CALLS,
    persistent: Callable[[Any], Any] | None = None,
    end: Callable[[int], None] | None = None,
    tensors: int = 0,
    built: Built | None = None,
    changed_keys: Callable[[int], None] | None = None,
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
        changed_keys: Takes how many keys of dicts are neither text nor integers, and are read as text.

    Raises:
        CheckpointError: It is no pickle, is larger than any state needs, or uses what only code could answer, such as
            an object from an extension registry.
    """
    value, stop, changed = run_pickle(data, where, calls, persistent, tensors, built)
    if end:
        end(stop)
    if changed_keys:
        changed_keys(changed)
    with _told(where):
        tree = _plain(value, {})
        require_bounded(tree, where, tensors)
        return tree


def run_pickle(
    data: bytes,
    where: str,
    calls: Mapping[str, Function],
    persistent: Callable[[Any], Any] | None = None,
    tensors: int = 0,
    built: Built | None = None,
) -> tuple[Any, int, int]:
    """Return what the machine makes of a pickle, the offset behind it, and how many keys became text.

    Args and errors are those of `read_pickle`.
    """
    if len(data) > MOST_BYTES:
        raise CheckpointError(f"{where}: the pickle has {len(data):,} bytes, more than {MOST_BYTES:,}")
    most = MOST_OPCODES + OPCODES_OF_A_TENSOR * tensors
    with _told(where):
        machine = Machine(where, calls, persistent, built)
        found = machine.run(data, most)
        if found is None:
            raise CheckpointError(
                f"{where}: the pickle has more than {most:,} opcodes; no training state needs so many"
            )
        return *found, machine.changed_keys


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Raise one error that names the file, whatever a pickle leads to."""
    try:
        yield
    except CheckpointError as error:
        if str(error).startswith(where):
            raise
        raise CheckpointError(f"{where}: {error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{where}: the pickle is nested too deeply, or an object holds itself") from error
    except Exception as error:  # a hostile stream may fail anywhere in an opcode or in a stand-in
        raise CheckpointError(f"{where} is no pickle that can be read: {type(error).__name__}: {error}") from error


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """Return a value with the machine's own records replaced by `Opaque`, shared containers walked once."""
    if isinstance(value, Global):
        return Opaque(value.name)
    if isinstance(value, Outside):
        content = value.content()
        return Opaque(value.kind, content, hidden=content is None)
    if id(value) in seen:
        found = seen[id(value)]
        if found is _PENDING:
            raise CheckpointError("a container of the pickle holds itself")
        return found
    if isinstance(value, bytearray):
        return bytes(value)
    if not isinstance(value, PARTS):
        return value
    seen[id(value)] = _PENDING
    made: Any
    if isinstance(value, Completed):
        made = _plain(value.completed(), seen)
    elif isinstance(value, Opaque):
        made = Opaque(value.name, _plain(value.content, seen), value.hidden)
    elif isinstance(value, Made):
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
