"""What code asks for being there and is made anew where it is not: `if self.ahead is None: self.ahead = self.load()`.

A batch that is loaded ahead and an observation that is made on demand are not there after a resume. The first step
makes them, and is the step that the uninterrupted run takes with its own: it has tried what was made. A best value is
another matter: it takes part in a comparison, of which many outcomes are alike.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable

from parity.checks.judging.syntax import names_in, source_tree

__all__ = ["is_compared"]


def is_compared(name: str, files: Iterable[str]) -> bool:
    """Return whether a name takes part in a comparison, or in what picks the least or the most.

    To ask whether it is None is none.

    Args:
        name: The last name of a path.
        files: Source files of the trainer.
    """
    return any(name in _compared(file) for file in files)


@functools.lru_cache(maxsize=64)
def _compared(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(source_tree(file)):
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                continue
            case ast.Compare() | ast.Call(func=ast.Name(id="min" | "max" | "sorted")):
                found |= names_in(node)
            case ast.Match(subject=subject):
                found |= names_in(subject)
    return frozenset(found)
