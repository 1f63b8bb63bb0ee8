"""Entry: the state of a resumed run where its first step begins, which a mark at the end of a step does not show.

At such a mark the run has made a step, and all that the step touched differs if anything does. What was restored and
came to differ by that step is a consequence; the state at the entry of the loop tells it from what was lost. It
orders suspects; no verdict follows from it.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from parity.capture import Scope, outer_scopes

__all__ = ["EntryWatch", "LoopEntry", "entry_of"]


class LoopEntry(NamedTuple):
    """Where the body of the loop begins that the marks are made in."""

    file: str
    first: int
    """First line of the function that has the loop, as its code says."""
    line: int
    """Line of the first statement of the body."""
    inner: bool
    """Whether the function is the one that marks, and not one around it: its variables have no prefix then."""


def entry_of(frames: Sequence[tuple[CodeType, int]]) -> LoopEntry | None:
    """Return where the loop around a mark begins; None if there is none, or if the mark begins it.

    Of one function it is the innermost loop, as an outer one may build and restore the state that an inner one
    trains; of several functions the outermost that has one: nearer to the mark are loops over callbacks.

    Args:
        frames: Code and line of the frame that marks and of those around it, the innermost first.
    """
    for at, (code, line) in reversed([*enumerate(frames)]):
        body = _body_of(code.co_filename, code.co_firstlineno, line)
        if body is not None:
            is_it = at > 0 or body < line
            return LoopEntry(code.co_filename, code.co_firstlineno, body, at == 0) if is_it else None
    return None


@functools.lru_cache(maxsize=64)
def _body_of(file: str, first: int, line: int) -> int | None:
    """Return the first line of the body of the innermost loop around a line of a function."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    own = [node for node in functions if first in {node.lineno, *(one.lineno for one in node.decorator_list)}]
    loops = [
        node
        for function in own
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor)
        and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        and node.body[0].lineno > node.lineno
    ]
    return max((node.body[0].lineno for node in loops), default=None)


class EntryWatch:
    """Takes the state once, where the body of a loop begins for the first time.

    Args:
        entry: Where that is.
        last: Code of the training function: frames around it are none of the trainer's.
        take: Takes the frames.
    """

    def __init__(self, entry: LoopEntry, last: CodeType | None, take: Callable[[Sequence[Scope]], None]) -> None:
        self._entry, self._last, self._take = entry, last, take

    def start(self) -> None:
        """Watch the calls of this thread from now on, unless a debugger or a coverage tool does."""
        if sys.gettrace() is None:
            sys.settrace(self._calls)

    def stop(self) -> None:
        """Watch nothing any more; what another tool watches is left to it."""
        if sys.gettrace() == self._calls:
            sys.settrace(None)

    def _calls(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        is_it = code.co_firstlineno == self._entry.first and code.co_filename == self._entry.file
        return self._lines if is_it else None

    def _lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno == self._entry.line:
            self.stop()
            scopes = outer_scopes(frame, self._last)
            if not self._entry.inner:
                scopes = [Scope.of(frame, frame.f_code.co_name), *scopes[1:]]
            self._take(scopes)
            return None
        return self._lines
