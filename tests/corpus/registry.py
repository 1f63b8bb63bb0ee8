"""The table of the corpus: training loops of outside shapes, each clean, each from a recipe that its docstring names.

A module below `loops/` has a tuple `LOOPS`; nothing else is registered anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["MODULES", "Loop", "loops", "loops_of"]

MODULES = tuple(sorted(path.stem for path in (Path(__file__).parent / "loops").glob("*_*.py")))
"""Names of the modules: what comes before the first underscore is the framework."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A training function that resumes exactly."""

    train: Callable[..., Any]
    """`train(folder)`: a generator of completed steps, or a function that calls `parity.mark`."""
    tags: tuple[str, ...] = ()
    """What is unusual about it."""
    steps: int = 14
    """Completed steps at the end."""
    stop_at: int = 9
    """Completed steps at the kill: after the first save, and not at one."""
    volatile: tuple[str, ...] = ()
    """Patterns of files that differ between two equal runs: clocks, what a thread had done at the kill."""

    @property
    def id(self) -> str:
        """The name of the function."""
        return self.train.__name__

    @property
    def framework(self) -> str:
        """What it is written in: torch, jax or numpy."""
        return self.train.__module__.rpartition(".")[2].partition("_")[0]

    @property
    def source(self) -> str:
        """The published recipe that the docstring names."""
        found = re.search(r"Source: (.+?)\.?\s*$", self.train.__doc__ or "", re.DOTALL)
        return " ".join(found[1].split()) if found else ""


def loops_of(module: str) -> tuple[Loop, ...]:
    """Return the loops of one module below `loops/`."""
    found: tuple[Loop, ...] = import_module(f"tests.corpus.loops.{module}").LOOPS
    return found


def loops(*frameworks: str) -> list[Loop]:
    """Return the loops of some frameworks, of all if none is named."""
    return [
        one
        for module in MODULES
        if not frameworks or module.partition("_")[0] in frameworks
        for one in loops_of(module)
    ]
