"""Large containers of plain values as one leaf: a vocabulary, a data set in lists, a table of counts.

Of a container with thousands of numbers and texts a leaf for each would cost more than the run that is checked. What
it holds is written in an order that does not depend on how it came to be, and its digest is the leaf. Two runs that
differ in it are told apart by that; which element differs is found where the values are fetched.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from parity.capture.arrays import LONG, PLAIN, digest_of
from parity.capture.probes import without_places

__all__ = ["MANY", "PlainContent", "items_of", "kind_of_whole", "said_of_key", "whole_of"]

MANY = 2000
"""Elements above which a container of plain values is one leaf, those of containers in it counted too."""

_SEQUENCES = (list, tuple, collections.deque)
_SETS = (set, frozenset)
_MAPPINGS = (dict, collections.Counter, collections.OrderedDict, collections.defaultdict)
_WITH_DEFAULTS = (collections.Counter, collections.defaultdict)
_CONTAINERS = frozenset((*_SEQUENCES, *_SETS, *_MAPPINGS))
_VALUES = frozenset(PLAIN)
_NUMBERS = frozenset((bool, int, float))

SAMPLE = 8
"""Most numbers of a container that are kept as they are, to be known again in a file."""
_DIGITS = 6
"""Fewest digits of such a number: 0.5 is in many files."""


class PlainContent(NamedTuple):
    """What a container of plain values holds."""

    elements: int
    """Values in it and in the containers in it."""
    numbers: bool
    """Whether they are numbers, some of them floating."""
    text: bytes
    """All of it, written in one order."""
    sample: tuple[str, ...]
    """Some of its floating numbers as Python writes them; none where it holds anything else."""


def whole_of(
    value: Any, least: int = 0, hide: Mapping[str, str] | None = None, *, shared: bool = False
) -> PlainContent | None:
    """Return what a container holds if that is nothing but plain values and containers of them; else None.

    Args:
        value: A sequence, a set or a mapping; a subclass counts as what it is derived from.
        least: Elements that it has to have more of.
        hide: Texts that differ between two equal runs, to what stands for them.
        shared: Whether a container may be in it twice. One that holds itself is never taken.
    """
    outer: Any = value
    if type(value) not in _CONTAINERS:
        outer = dict(value) if isinstance(value, Mapping) else list(value)
    elements, types, known = 0, set[type](), set[int]()
    waiting: list[tuple[Any, bool]] = [(outer, False)]
    while waiting:
        one, of_key = waiting.pop()
        cls = type(one)
        if cls not in (tuple, frozenset):
            if id(one) in known and not (shared and one is not outer):
                return None
            known.add(id(one))
        elements += len(items_of(one)) if cls in _WITH_DEFAULTS else len(one)
        of_keys = [(one.keys(), True), (one.values(), of_key)] if cls in _MAPPINGS else [(one, of_key)]
        for part, in_keys in of_keys:
            kinds = set(map(type, part))
            inner = kinds - _VALUES
            if not inner <= _CONTAINERS:
                return None
            types |= set() if in_keys else kinds & _VALUES
            waiting += [(each, in_keys) for each in part if type(each) in inner] if inner else ()
    if elements <= least:
        return None
    numbers = float in types and types <= _NUMBERS
    text = _hidden("".join(_written(outer, hide or {})), hide or {})
    return PlainContent(elements, numbers, text, tuple(_sample(outer)) if numbers else ())


def items_of(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return keys and values of a mapping, without those that a `Counter` or a `defaultdict` gives anyhow.

    A count that came down to zero, an empty list that a look at a key has made: asking for it gives the same as
    asking for a key that is not there, and a table that is made anew from what was counted has none of them. What a
    loop over the keys does with them shows in what it does.

    Example:
        >>> items_of(collections.Counter(a=1, b=0)), items_of(dict(a=1, b=0))
        ([('a', 1)], [('a', 1), ('b', 0)])
    """
    items = list(dict.items(mapping) if isinstance(mapping, dict) else mapping.items())
    if isinstance(mapping, collections.Counter):
        return [(key, value) for key, value in items if type(value) is not int or value]
    factory = mapping.default_factory if isinstance(mapping, collections.defaultdict) else None
    if not any(factory is one for one in _EMPTY):
        return items
    return [(key, value) for key, value in items if type(value) is not factory or value or repr(value) == "-0.0"]


_EMPTY = (int, float, bool, str, bytes, list, tuple, dict, set, frozenset)
"""What makes defaults that hold nothing."""


def kind_of_whole(value: Any, length: int, numbers: bool) -> str:
    """Return the kind of a leaf that stands for a container: `dict[20000]`, `list[100] of numbers`.

    Args:
        value: The container.
        length: Elements of it that are shown.
        numbers: Whether it holds floating numbers and nothing but numbers.
    """
    return f"{type(value).__name__}[{length}]{' of numbers' if numbers else ''}"


def said_of_key(key: Any) -> str:
    """Return the representation of a key or of an element of a set, with that of frozen sets in it in one order.

    Two equal frozen sets print otherwise where their elements were added in another order: an edge between two nodes
    that a resume makes from its ends is the same key, whichever end comes first.

    Example:
        >>> repr(frozenset((0, 8))) == repr(frozenset((8, 0)))
        False
        >>> said_of_key(frozenset((0, 8))), said_of_key((frozenset((8, 0)), "a"))
        ('frozenset({0, 8})', "(frozenset({0, 8}), 'a')")
    """
    said = repr(key)
    if "frozenset({" not in said:
        return said
    if type(key) is frozenset:
        return f"frozenset({{{', '.join(sorted(map(said_of_key, key)))}}})"
    if type(key) is tuple:
        return f"({', '.join(map(said_of_key, key))}{',' if len(key) == 1 else ''})"
    return said


def _written(outer: Any, hide: Mapping[str, str]) -> Iterator[str]:
    """Yield what a container holds as text, mappings and sets in the order of their keys; however deep it is."""
    stack: list[Iterator[Any]] = [iter((outer,))]
    while stack:
        for one in stack[-1]:
            cls = type(one)
            if cls in _VALUES:
                yield f"{one!r},"
                continue
            yield f"{cls.__name__}("
            if cls in _MAPPINGS:
                plain, items = set(map(type, one)) | set(map(type, one.values())) <= _VALUES, items_of(one)
                parts = _sorted(items, hide) if plain else None
                ordered = () if plain else sorted(items, key=lambda pair: said_of_key(pair[0]))
                stack.append(iter([part for pair in ordered for part in pair]))
            else:
                plain = set(map(type, one)) <= _VALUES
                unordered = cls in _SETS
                parts = (_sorted(one, hide) if unordered else repr(list(one))) if plain else None
                stack.append(iter(() if plain else sorted(one, key=said_of_key) if unordered else one))
            if parts is not None:
                yield parts
            break
        else:
            stack.pop()
            yield ")"


def _sorted(parts: Iterable[Any], hide: Mapping[str, str]) -> str:
    """Return what is in a mapping or a set of values, in order; of many parts the digest, which is found once."""
    said = list(map(repr, parts))
    if len(said) <= LONG:
        return ",".join(sorted(said))
    known = digest_of(_hidden(",".join(said), hide))
    if known not in _digests:
        if len(_digests) > 256:
            _digests.clear()
        _digests[known] = digest_of(_hidden(",".join(sorted(said)), hide))
    return _digests[known]


_digests: dict[str, str] = {}
"""Digest of what mappings hold in the order in which they hold it, to that in the order of their keys: to sort a
vocabulary at each mark takes longer than all else."""


def _hidden(text: str, hide: Mapping[str, str]) -> bytes:
    for hidden, shown in hide.items():
        text = text.replace(hidden, shown)
    return without_places(text).encode("utf-8", "surrogatepass")


def _sample(outer: Any) -> Iterator[str]:
    """Yield floating numbers of many digits, as far as they are there."""
    waiting, found = [outer], 0
    while waiting:
        one = waiting.pop()
        for each in one.values() if type(one) in _MAPPINGS else one:
            if type(each) in _CONTAINERS:
                waiting.append(each)
            elif type(each) is float and sum(letter.isdigit() for letter in repr(each)) >= _DIGITS:
                yield repr(each)
                found += 1
                if found == SAMPLE:
                    return
