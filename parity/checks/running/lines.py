"""Texts line by line, as leaves: what each line is known by, and its numbers. So is what a run prints, as it does."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from parity.capture import Leaf, digest_of, without_places

__all__ = ["IN_ORDER", "in_order", "keep_printed", "line_leaves", "with_signs"]

IN_ORDER = "all lines in order"
"""Stands for the lines of a log as they follow one another: by themselves, those that are alike are one."""

MOST_LINES = 50_000
MOST_CHARACTERS = 1 << 20
"""Characters that are kept of what one run prints."""
MOST_TOLD_BY_FIRST = 4
"""Below so many lines of the same words nothing tells which of their numbers counts them."""

_PLAIN = r"[-+]?\b\d+\.?\d*(?:[eE][-+]?\d+)?\b|\b(?:nan|inf)\b"
# A quantity with its unit directly behind it is one number: `0.16s`, `12ms`, `1m23s`. What has a fraction is no name,
# whatever letters follow; of a whole number these must be a unit of time or bytes, since `1a` and `2nd` are names.
_LETTERS = r"(?![eE][-+]?\d)[^\W\d_]+"
_UNITS = r"(?:[nuµμm]?s|sec|min|h|[kKMGT]?i?B|[kM]?it|[kMG]?Hz)"
_FRACTION = rf"\d+(?:\.\d+(?:[eE][-+]?\d+)?|[eE][-+]?\d+){_LETTERS}"
_DURATION = r"(?:\d+h)?\d+m(?:\d+(?:\.\d+)?s)|\d+h\d+m"
# A date and a clock are one each: their first part counts no lines.
_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?|\d{4}-\d{2}-\d{2}(?![-\d])"
_NUMBER = re.compile(rf"(?<![.\w])(?:{_CLOCK}|[-+]?(?:{_FRACTION}|{_DURATION}|\d+{_UNITS})\b)|{_PLAIN}")
_WHOLE = re.compile(r"[-+]?\d+$")


def line_leaves(text: str, shown: dict[str, str], *, log: bool = True) -> dict[str, Leaf]:
    r"""Return one leaf for each number of each line of a log, and for the lines themselves.

    A line is known by its words and its first whole number, mostly the step: a run that was stopped writes some lines
    twice, and the last one counts. So runs that write the same lines have equal leaves, however often. Where a later
    number counts the lines, and the first does not, as after the hour of a clock, they are known by that one.

    Args:
        text: What the file holds.
        shown: Texts that differ between equal runs, to what stands for them.
        log: Whether lines come one by one. In a file that is written at once every line counts.

    Example:
        >>> sorted(line_leaves("step 3 loss 0.5\n", {}))
        ['step 3 loss #', 'step 3 loss #[0]']
    """
    found: dict[str, Leaf] = {}
    counts: dict[str, int] = {}
    for key, rest in _keyed(text, shown, log=log):
        if not log and key in found:
            counts[key] = counts.get(key, 1) + 1
            key = f"{key} ({counts[key]})"
        found[key] = Leaf("scalar", "record", "line", key)
        found |= {f"{key}[{at}]": Leaf("scalar", "record", "number", number) for at, number in enumerate(rest)}
    return found


def _keyed(text: str, shown: dict[str, str], *, log: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield what each line is known by, and its other numbers."""
    lines = [_Line(with_signs(line, shown)) for line in text.splitlines()[:MOST_LINES]]
    alike: dict[str, list[_Line]] = {}
    for line in lines if log else ():
        alike.setdefault(line.words(None), []).append(line)
    counting = {words: _counting(here) for words, here in alike.items()}
    for line in lines:
        at = counting.get(line.words(None))
        at = line.first if at is None else at
        if key := line.words(at):
            yield key, [number for n, number in enumerate(line.numbers) if n != at]


class _Line:
    """One line of a text: its numbers, and what stands between them."""

    def __init__(self, text: str) -> None:
        found = list(_NUMBER.finditer(text))
        self.numbers = [number[0] for number in found]
        ends = [0, *(number.end() for number in found)]
        self._between = [text[a:b] for a, b in zip(ends, [*(n.start() for n in found), len(text)], strict=True)]
        self.first = next((at for at, number in enumerate(self.numbers) if _WHOLE.match(number)), None)

    def words(self, at: int | None) -> str:
        """Return the line with a sign in the place of all numbers but one."""
        shown = [number if n == at else "#" for n, number in enumerate(self.numbers)]
        return "".join(part for pair in zip(self._between, [*shown, ""], strict=True) for part in pair).strip()


def _counting(lines: Sequence[_Line]) -> int | None:
    """Return which number counts lines of the same words; None where the first whole one may, or none does.

    It grows from line to line, but where a process wrote lines again.
    """
    if len(lines) < MOST_TOLD_BY_FIRST:
        return None
    for at in range(len(lines[0].numbers)):
        if not all(_WHOLE.match(line.numbers[at]) for line in lines):
            continue
        values = [int(line.numbers[at]) for line in lines]
        falls = sum(b < a for a, b in itertools.pairwise(values))
        if 2 * len(set(values)) > len(values) and 4 * falls <= len(values):
            return at
    return None


def in_order(text: str, shown: dict[str, str]) -> Leaf:
    """Return the lines of a log without their numbers, but for the one that each is known by, as one leaf."""
    lines = text.splitlines()[:MOST_LINES]
    keys = [key for key, _ in _keyed(text, shown, log=True)]
    return Leaf("scalar", "record", f"lines[{len(lines)}]", digest_of("\n".join(keys).encode()))


def with_signs(text: str, shown: dict[str, str]) -> str:
    """Return a text with what stands for texts that differ between equal runs."""
    for hide, show in shown.items():
        text = text.replace(hide, show)
    return without_places(text)


class _Tee:
    """Stands for the standard output of a run."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._parts, self._left = stream, [], MOST_CHARACTERS  # type: ignore[var-annotated]

    def write(self, text: str) -> int:
        """Keep a text and pass it on."""
        self._parts.append(text[: self._left])
        self._left = max(0, self._left - len(text))
        written: int = self._stream.write(text)
        return written

    def close(self) -> None:
        """Leave the stream open: it is the check's too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def text(self) -> str:
        """Return what was written."""
        return "".join(self._parts)


@contextmanager
def keep_printed(into: dict[str, Leaf], hidden: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Keep what is printed within, as leaves of lines; what it gives keeps what was printed so far.

    Args:
        into: Takes the leaves, also if an error ends the run.
        hidden: Texts that differ between equal runs, to what stands for them.
    """
    before, tee = sys.stdout, _Tee(sys.stdout)
    sys.stdout = tee

    def keep() -> None:
        into.update(line_leaves(tee.text(), dict(hidden)))

    try:
        yield keep
    finally:
        if sys.stdout is tee:
            sys.stdout = before
        keep()
