"""What `make test-quick` runs: folders of quick tests, and marks at those elsewhere that break first or take seconds.

In: what breaks first when something is wrong: the pure parts, the errors of the commands, both sides as far as
they need no long compilation, runs resumed within one process, and one planted fault of each group.

| mark | of |
|---|---|
| `breaks_first` | a module or a test of another folder that is quick too |
| `takes_seconds` | one of a quick folder that is not: it compiles, starts processes, or needs a rare program |

Given identifiers of parameters, a mark is of these cases alone: `@pytest.mark.takes_seconds("jax")`. What takes
seconds is not quick, whatever else it is. Of a test with more cases than that, three are: the first, the one in the
middle and the last, and each that `breaks_first` names; `make test` runs them all. A file of another folder in which
no test has the first mark is not even read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

__all__ = ["ABSENT", "FIRST", "FOLDERS", "LATER", "covering", "is_named", "is_quick", "may_hold_quick"]

FIRST, LATER = "breaks_first", "takes_seconds"

FOLDERS = frozenset(
    (
        "architecture",
        "cli",
        "convert",
        "docs",
        "formats",
        "forks",
        "mapping",
        "parity",
        "report",
        "sides",
        "torch_side",
        "trackers",
    )
)
"""Folders below tests/ whose tests are quick."""

ABSENT = {
    "gpu": "a GPU; where there is one, `make test` runs it",
    "soak": "hours; `make soak` runs it",
}
"""Folders of tests without a quick one, and why."""


def may_hold_quick(file: Path) -> bool:
    """Tell whether a file of tests may hold a quick one: its folder is quick, or its text names the mark.

    Args:
        file: Its path, below `tests`.
    """
    return file.parent.name in FOLDERS or FIRST in file.read_text(encoding="utf-8")


def is_quick(node: str, marks: Iterable[pytest.Mark]) -> bool:
    """Tell whether a test is one of the quick ones.

    Args:
        node: Its id.
        marks: Those of the test and of its module.
    """
    path, _, name = node.removeprefix("tests/").partition("::")
    case = name.partition("[")[2].removesuffix("]")
    said = {mark.name for mark in marks if not mark.args or case in mark.args}
    return (path.partition("/")[0] in FOLDERS or FIRST in said) and LATER not in said


def is_named(node: str, marks: Iterable[pytest.Mark]) -> bool:
    """Tell whether a mark names this very case as one that breaks first.

    Args:
        node: Its id.
        marks: Those of the test and of its module.
    """
    case = node.partition("[")[2].removesuffix("]")
    return any(mark.name == FIRST and case in mark.args for mark in marks)


def covering(nodes: Sequence[str]) -> set[str]:
    """Return at most three of the cases of each function: the first, the one in the middle and the last.

    A table of cases goes from plain to odd more often than not; three thousand cases are half of the seconds.

    Args:
        nodes: Ids of cases, in the order of their tables.
    """
    cases: dict[str, list[str]] = {}
    for node in nodes:
        cases.setdefault(node.partition("[")[0], []).append(node)
    return {one for found in cases.values() for one in (found[0], found[len(found) // 2], found[-1])}
