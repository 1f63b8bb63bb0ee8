"""Names with `*`: which names a pattern takes, and what the same stars give on the other side.

A star is one key between dots where leaves are named by keys. Paths of live state have brackets and quotes too
(`layers[0].kernel`), so there a star is any text, as little as fits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["by_keys", "by_text", "fill_keys", "fill_text"]


@lru_cache(1024)
def by_keys(pattern: str, *, below: bool = False) -> re.Pattern[str]:
    """Return what matches the names that a pattern takes, with a group for each `*`, which is one key.

    Args:
        pattern: Keys joined by dots, some of them `*`.
        below: Whether it also takes all that lies below such a name; one group more, the last, is the rest. A key
            may be empty then, as those of a saved tree may.

    Example:
        >>> by_keys("layers.*.weight").fullmatch("layers.3.weight").groups()
        ('3',)
        >>> by_keys("layers.*", below=True).fullmatch("layers.3.weight").groups()
        ('3', '.weight')
    """
    star = "([^.]*)" if below else "([^.]+)"
    keys = r"\.".join(star if key == "*" else re.escape(key) for key in pattern.split("."))
    return re.compile(f"{keys}((?:\\..*)?)" if below else keys, re.DOTALL)


def fill_keys(pattern: str, stars: Sequence[str]) -> str:
    """Return the name that a pattern gives for what its stars stand for.

    Args:
        pattern: Keys joined by dots, some of them `*`.
        stars: A key for each `*`, at least.
    """
    rest = iter(stars)
    return ".".join(next(rest) if key == "*" else key for key in pattern.split("."))


@lru_cache(1024)
def by_text(pattern: str) -> re.Pattern[str]:
    """Return what matches the paths that a pattern takes, with a group for each `*`, which is any text.

    Args:
        pattern: A path; a `*` may stand anywhere in it.

    Example:
        >>> by_text("layers[*].w*").fullmatch("layers[3].weight").groups()
        ('3', 'eight')
    """
    return re.compile("(.+?)".join(map(re.escape, pattern.split("*"))))


def fill_text(pattern: str, stars: Sequence[str]) -> str:
    """Return the path that a pattern gives for what its stars stand for; a star too many stays one.

    Args:
        pattern: A path; a `*` may stand anywhere in it.
        stars: The text for each `*`, in order.
    """
    texts = iter(stars)
    return "".join(part if part != "*" else next(texts, "*") for part in re.split(r"(\*)", pattern))
