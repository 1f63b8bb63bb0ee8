"""The trainer's source: which files are the user's own, and words by which observations and suspects are ordered."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from parity.capture import is_library_file

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
    return not (file.startswith(_SUITE) or is_library_file(file))


_ROOT = Path(__file__).parents[3]
_SUITE = ("<", *(os.path.join(_ROOT / name, "") for name in ("parity", "jax_side", "torch_side")))
"""Beginnings of what is no file, and of the suite's files: in its checkout they lie where a user's would, and what
its adapters decide by while they look at a trainer is no decision of the trainer."""
