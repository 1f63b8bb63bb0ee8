"""The trainer's source: which files are the user's own, and words by which observations and suspects are ordered."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from pathlib import Path

__all__ = ["EVALUATES", "SAVES", "called_name", "is_users"]

SAVES = re.compile(r"(^|_)(save\w*|checkpoint\w*|ckpt|dump\w*|export\w*|snapshot)($|_)", re.IGNORECASE)
EVALUATES = re.compile(r"(^|_)(eval\w*|valid\w*|val|test|estimate\w*)($|_)", re.IGNORECASE)
"""Words of calls that seem to save and to evaluate: they choose what is observed, and decide nothing."""


def called_name(call: ast.Call) -> str:
    """Return the last name of what is called; empty where it has none, as in `table[0]()`."""
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def is_users(file: str) -> bool:
    """Return whether a source file is the user's: neither of Python, nor installed, nor of this suite."""
    return not file.startswith(_OTHERS) and not file.startswith("<")


_OTHERS = tuple(
    os.path.join(path, "")
    for path in {*(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
                 str(Path(__file__).parents[2])}
)  # fmt: skip
"""Directories of code that is not the user's: by where it lies, since a package of any name may be a user's own."""
