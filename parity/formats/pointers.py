"""Texts of Orbax by their names: each name is a JSON pointer into one document, so "/" in it leads deeper.

Source: RFC 6901, and `StringHandler` of Orbax 0.12, which writes and reads `/NAME` of `_strings.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["not_pointed", "put_text", "text_at"]

_ODD = re.compile(r"~(?![01])")


def put_text(texts: dict[str, Any], name: str, text: str) -> None:
    """Put a text where a name points.

    Args:
        texts: The document; changed in place.
        name: Of which `not_pointed` says nothing.
        text: The text.

    Example:
        >>> texts = {}
        >>> put_text(texts, "p.a/b", "one")
        >>> put_text(texts, "p.c~1d", "two")
        >>> texts, text_at(texts, "p.a/b"), text_at(texts, "p.c~1d")
        ({'p.a': {'b': 'one'}, 'p.c/d': 'two'}, 'one', 'two')
    """
    *above, last = _keys(name)
    for key in above:
        texts = texts.setdefault(key, {})
    texts[last] = text


def text_at(texts: Mapping[str, Any], name: str) -> Any:
    """Return what is where a name points, or under the name itself, as former files have it; None if nothing is."""
    node: Any = texts
    for key in _keys(name):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, str) else texts.get(name)


def not_pointed(names: list[str]) -> list[tuple[str, str]]:
    """Return the names of texts that no document can have, each with why.

    Example:
        >>> not_pointed(["a~b", "p", "p/q", "fine"])
        [('a~b', 'Orbax reads no text by a name with ~ in it'), ('p/q', 'Orbax cannot keep it beside the text p')]
    """
    found = [(name, "Orbax reads no text by a name with ~ in it") for name in names if _ODD.search(name)]
    places = {tuple(_keys(name)): name for name in names if not _ODD.search(name)}
    for keys, name in places.items():
        around = next((places[keys[:n]] for n in range(1, len(keys)) if keys[:n] in places), None)
        if around is not None:
            found.append((name, f"Orbax cannot keep it beside the text {around}"))
    once = {*places.values(), *(name for name, _ in found)}
    return found + [(name, "Orbax cannot tell it from another text") for name in names if name not in once]


def _keys(name: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in name.split("/")]
