"""What a writer wrote, read back and compared leaf by leaf with what it was given, before it is sealed.

A seal proves that bytes are those that were written. That those are the right ones, no digest of a file proves: a
writer that exchanges two leaves seals the exchange. So the draft is opened by the reader of its format, and each leaf
is compared with the digest that was taken of the source while it was read for writing.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parity.convert.digesting import Digests, digest_of
from parity.errors import CheckpointError, explain
from parity.formats import Array, Key, Tree, leaf_name, leaves

__all__ = ["require_same"]

Keys = tuple[Key, ...]
LeavesByName = Mapping[tuple[str, ...], list[tuple[Keys, Any]]]


def require_same(written: Tree, digests: Digests, read: Callable[[], Tree], target: Path) -> None:
    """Compare what a draft holds with the tree that its writer was given.

    Containers are compared by their keys as text: formats turn tuples into lists, lists into maps, numbers into text.

    Args:
        written: What the writer was given.
        digests: Those of its arrays, taken while they were read.
        read: Returns what lies in the draft now, by the reader of its format.
        target: The name that the draft would get, for the message.

    Raises:
        OSError: A leaf is missing, unexpected, of another type or of another value, or nothing can be read.
    """
    try:
        _compare(_by_name(written), digests, _by_name(read()), target)
    except (CheckpointError, LookupError) as error:
        raise _fault(target, (), explain(error)) from error


def _compare(expected: LeavesByName, digests: Digests, made: LeavesByName, target: Path) -> None:
    for name in {**expected, **made}:
        wanted, got = expected.get(name, []), made.get(name, [])
        if len(wanted) != len(got):
            raise _fault(target, name, f"{len(wanted)} leaves of this name were written, {len(got)} came back")
        for (keys, leaf), (_, other) in zip(wanted, got, strict=True):
            if isinstance(leaf, Array) and isinstance(other, Array):
                before, after = digests.text(keys), digest_of(other)
            else:
                before, after = _shown(leaf), _shown(other)
            if before != after:
                raise _fault(target, name, f"{before[:120]} was written, and {after[:120]} came back")


def _by_name(tree: Tree) -> LeavesByName:
    """Return the leaves by their keys as text; a dict may have 1 and "1", which are told apart by their order."""
    found: dict[tuple[str, ...], list[tuple[Keys, Any]]] = {}
    for keys, leaf in leaves(tree):
        found.setdefault(tuple(map(str, keys)), []).append((keys, leaf))
    return found


def _shown(leaf: Any) -> str:
    """Return the type and all bits of a leaf as text; empty containers are alike, as formats change their kind."""
    if isinstance(leaf, dict | list | tuple):
        return "an empty container"
    if isinstance(leaf, float):
        return f"float {leaf!r} {struct.pack('<d', leaf).hex()}"
    if isinstance(leaf, complex):
        return f"complex {struct.pack('<dd', leaf.real, leaf.imag).hex()}"
    return f"{type(leaf).__name__} {leaf!r}"


def _fault(target: Path, name: tuple[str, ...], why: str) -> OSError:
    leaf = f"{leaf_name(name)[:200]}: " if name else ""
    what = f"{leaf}{why}; the writer or the disk is at fault, and nothing was kept"
    error = OSError(errno.EIO, what, str(target))
    vars(error)["operation"] = "read back"
    return error
