"""The parser of the command line: says which word was meant, and wraps texts between words, never within one."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
import unicodedata
from typing import IO, Any, NoReturn

from parity.errors import similar

__all__ = ["Formatter", "Parser", "say"]

NARROWEST = 20
"""Columns of the narrowest terminal that lines are wrapped for."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help whose lines are broken at spaces alone; examples and exit codes keep their lines where these fit."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrap(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = max(shutil.get_terminal_size().columns, NARROWEST)
        return "\n".join(indent + line for one in text.splitlines() for line in _fit(one, width))


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the word that was meant, and list those that there are; its subparsers are alike."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"formatter_class": Formatter, **settings})

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        close = similar(str(value), known)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        raise argparse.ArgumentError(action, f"invalid choice: {str(value)[:80]!r}; known: {', '.join(known)}{meant}")

    def error(self, message: str) -> NoReturn:
        """Print how the command is used and what is wrong, and exit with 2."""
        self.print_usage(sys.stderr)
        say(f"{self.prog}: error: {message}", sys.stderr)
        self.exit(2)


def say(text: str, file: IO[str] | None = None) -> None:
    """Print a text; on a terminal its lines end between words.

    Args:
        text: May have several lines.
        file: Where to; by default standard output.
    """
    file = sys.stdout if file is None else file
    width = _columns(file)
    print("\n".join(line for one in _harmless(text).splitlines() for line in _fit(one, width)), file=file)


def _harmless(text: str) -> str:
    """Return a text whose control and direction characters are spelled out: the name of a file may have any."""
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _STEERING and c not in "\n\t" else c for c in text)


_STEERING = ("Cc", "Cf", "Cs")
"""Categories of characters that act on a terminal, or that no encoding writes."""


def _fit(line: str, width: int | None) -> list[str]:
    """Return a line as those of a terminal, all but the first indented further; without a width as it is."""
    if width is None or len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return _wrap(line.strip(), width, indent, f"{indent}  ")


def _columns(file: IO[str] | None) -> int | None:
    """Return the columns of a terminal; None elsewhere: on a pipe an error is one line, whatever COLUMNS says."""
    if file is None or not file.isatty():
        return None
    return max(shutil.get_terminal_size().columns, NARROWEST)


def _wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip
