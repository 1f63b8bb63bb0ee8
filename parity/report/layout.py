"""Rows of a table on a terminal of any width; no figure is ever cut.

A row that fits is one line. Where it does not fit, its columns give way: empty columns vanish, heads and text wrap at
their spaces, then the least important columns move to a line below the row. Where not even the columns that identify
a row fit, each row becomes a block with one field on each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from parity.report.words import clean

__all__ = ["Column", "print_rows", "print_wrapped"]

GAP = 2
"""Spaces between two columns."""

BELOW = "    "
"""Indentation of the line that takes the columns for which a row has no room."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    """Its head, and the name of its field where rows are blocks."""
    rank: int = 0
    """0: identifies a row, and stays in its line. Of the others, the column of the highest rank gives way first."""
    right: bool = False
    """Whether its cells are aligned to the right."""
    wraps: bool = False
    """Whether its cells may wrap at their spaces; those of figures may not."""


PARTS = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d_]+|.")
"""Parts of a word that stay whole: numbers, names, single signs."""

TextRow = Sequence[Text]
"""One cell for each column."""

Cells = Sequence[Text | str]
"""A row as it is given: plain text may come from a file, and is cleaned here."""


def print_rows(console: Console, columns: Sequence[Column], given: Sequence[Cells]) -> None:
    """Print rows below the heads of their columns, or as blocks, by the width of the console.

    Args:
        console: Where they are printed.
        columns: The columns, in order.
        given: One cell for each column; a `Text` is shown as it is and may have several lines.
    """
    if not given:
        return
    rows = [[cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row] for row in given]
    shown = list(range(len(columns)))
    widths = _fit(console.width, columns, rows, shown)
    if widths is None:
        shown = [index for index in shown if columns[index].rank == 0 or any(row[index].plain for row in rows)]
        widths = _fit(console.width, columns, rows, shown)
    below: list[int] = []
    while widths is None:
        leaving = max(shown, key=lambda index: columns[index].rank, default=None)
        if leaving is None or columns[leaving].rank == 0:
            _print_blocks(console, columns, rows)
            return
        shown.remove(leaving)
        below.append(leaving)
        widths = _fit(console.width, columns, rows, shown)
    heads = [Text(columns[index].name, style="bold") for index in shown]
    rights = [columns[index].right for index in shown]
    for line in _lines(heads, widths, rights, bottom=True):
        _print(console, line)
    for row in rows:
        for line in _lines([row[index] for index in shown], widths, rights):
            _print(console, line)
        for line in _pairs(console.width, columns, row, sorted(below)):
            _print(console, line)


def print_wrapped(console: Console, text: Text | str, *, indent: int = 0) -> None:
    """Print text, wrapped at its spaces on a terminal; no number is broken.

    Args:
        console: Where it is printed.
        text: One line of text.
        indent: Spaces before each line; those after the first have two more.
    """
    text = Text(text) if isinstance(text, str) else text
    if not console.is_terminal:
        _print(console, Text(" " * indent).append_text(text))
        return
    for number, line in enumerate(_wrap(text, console.width - indent - 2)):
        _print(console, Text(" " * (indent + (2 if number else 0))).append_text(line))


def _fit(width: int, columns: Sequence[Column], rows: Sequence[TextRow], shown: Sequence[int]) -> list[int] | None:
    """Return the width of each column that is shown, as wide as there is room for; None if there is too little."""
    cells = [[row[index] for row in rows] for index in shown]
    least, widths = [], []
    for index, column in zip(shown, cells, strict=True):
        head = Text(columns[index].name)
        wraps = columns[index].wraps
        least.append(max(_longest_word(head), *((_longest_word if wraps else _width)(cell) for cell in column)))
        widths.append(max(_width(head), *map(_width, column)))
    over = sum(widths) + GAP * (len(shown) - 1) - width
    for place in sorted(range(len(shown)), key=lambda place: -columns[shown[place]].rank):
        given = min(max(over, 0), widths[place] - least[place])
        widths[place] -= given
        over -= given
    return widths if over <= 0 else None


def _lines(cells: TextRow, widths: Sequence[int], rights: Sequence[bool], *, bottom: bool = False) -> Iterator[Text]:
    """Return the lines of one row; `bottom` puts short cells next to the row below."""
    wrapped = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, wrapped))
    for number in range(height):
        line = Text()
        for place, (parts, width, right) in enumerate(zip(wrapped, widths, rights, strict=True)):
            at = number - (height - len(parts) if bottom else 0)
            part = parts[at].copy() if 0 <= at < len(parts) else Text()
            space = " " * (width - part.cell_len)
            line.append(" " * GAP if place else "").append(space if right else "")
            line.append_text(part).append("" if right else space)
        yield line


def _pairs(width: int, columns: Sequence[Column], row: TextRow, below: Sequence[int]) -> Iterator[Text]:
    """Return the lines below a row: names and values of the columns that have no room in it."""
    line = Text(BELOW)
    for index in below:
        if not row[index].plain:
            continue
        pair = Text(f"{columns[index].name} ").append_text(Text(" ").join(row[index].split("\n")))
        if len(line) > len(BELOW) and line.cell_len + GAP + pair.cell_len > width:
            yield line
            line = Text(BELOW)
        line.append(" " * GAP if len(line) > len(BELOW) else "").append_text(pair)
    if len(line) > len(BELOW):
        yield line


def _print_blocks(console: Console, columns: Sequence[Column], rows: Sequence[TextRow]) -> None:
    margin = max(len(column.name) for column in columns) + GAP
    for number, row in enumerate(rows):
        if number:
            console.print()
        for column, cell in zip(columns, row, strict=True):
            if not cell.plain:
                continue
            head = Text(column.name.ljust(margin), style="bold")
            for part in _wrap(cell, console.width - margin):
                _print(console, head.append_text(part))
                head = Text(" " * margin)


def _wrap(text: Text, width: int) -> list[Text]:
    """Return text in lines of a width, broken at spaces; too long a word is broken around its numbers and names."""
    lines: list[Text] = []
    for paragraph in text.split("\n"):
        breaks, start = [], 0
        for word in re.finditer(r"\S+", paragraph.plain):
            if word.start() > start and cell_len(paragraph.plain[start : word.end()]) > width:
                breaks.append(start := word.start())
            for part in PARTS.finditer(paragraph.plain, word.start(), word.end()):
                if part.start() > start and cell_len(paragraph.plain[start : part.end()]) > width:
                    breaks.append(start := part.start())
        parts = paragraph.divide(breaks)
        for line in parts:
            line.rstrip()
        lines += parts
    return lines or [Text()]


def _longest_word(text: Text) -> int:
    return max((cell_len(word) for word in text.plain.split()), default=0)


def _width(text: Text) -> int:
    return max(line.cell_len for line in text.split("\n"))


def _print(console: Console, line: Text) -> None:
    line.rstrip()
    console.print(line, soft_wrap=True)
