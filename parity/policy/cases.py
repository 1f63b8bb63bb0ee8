"""The table of cases that specifies the checkpoint policy: events of a run, and the checkpoints on disk after each.

Each line of a case is an event, a bar, and the steps that are on disk after the event. `*` marks the best; the latest
is always the last one; `!` means that the event is refused and changes nothing. A metric is a number, `nan`, `inf`,
or `-` where none was measured. Checkpoints are removed only at saves. The cases are in `cases.txt`; docs/policy.md
shows them, and `conformance.py` compares an implementation with them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.policy.rules import Mode, Rules, Which

__all__ = [
    "GROUPS",
    "Case",
    "Change",
    "Event",
    "Expected",
    "Late",
    "Restart",
    "Resume",
    "Save",
    "Validated",
    "cases",
    "read",
]

GROUPS = {
    "latest": "the n newest stay",
    "best": "the m best stay, larger or smaller being better",
    "ties": "of equal metrics the newer is better",
    "nan": "NaN is never best and never evicts",
    "missing": "a missing metric is never best and never evicts",
    "infinite": "infinities are never best and never evict",
    "every": "every k-th step stays",
    "time": "one stays for every T seconds",
    "age": "the best is never evicted by age",
    "metric": "the latest is never evicted by metric",
    "late": "a metric may arrive after the save",
    "restart": "a restart forgets nothing",
    "change": "the policy may change within a run",
    "back": "resuming from best or an older step gives up what is newer",
    "between": "a new best between two saves is saved at once",
}
"""Group of cases to the rule that it specifies; the n-th group belongs to rule n of docs/policy.md."""


@dataclass(frozen=True, kw_only=True)
class Save:
    """A checkpoint is saved."""

    step: int
    metric: float | None
    at: float | None = None
    """Time of the save in seconds; None where time does not matter."""


@dataclass(frozen=True, kw_only=True)
class Validated:
    """The run validates at a step at which no save is due; it saves there if that is a new best."""

    step: int
    metric: float


@dataclass(frozen=True, kw_only=True)
class Late:
    """A metric arrives for a checkpoint that was saved before."""

    step: int
    metric: float


@dataclass(frozen=True, kw_only=True)
class Restart:
    """The process ends, and another one resumes from the latest checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another process resumes from the latest checkpoint under other rules."""

    rules: Rules


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Another process resumes from a named checkpoint and gives up the newer ones."""

    which: Which


Event = Save | Validated | Late | Restart | Change | Resume


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The checkpoints that must be on disk after an event."""

    steps: tuple[int, ...]
    best: int | None
    refused: bool = False

    @property
    def latest(self) -> int | None:
        """Return the newest step."""
        return self.steps[-1] if self.steps else None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table."""

    group: str
    name: str
    rules: Rules
    text: tuple[str, ...]
    """The lines of the table, one for each event."""
    rows: tuple[tuple[Event, Expected], ...]


@functools.cache
def cases() -> tuple[Case, ...]:
    """Return the cases of the table, in the order of `GROUPS`."""
    return read((Path(__file__).with_suffix(".txt")).read_text(encoding="utf-8"))


def read(text: str) -> tuple[Case, ...]:
    r"""Parse cases: blocks separated by an empty line, each headed by `# group | name | rules`.

    Raises:
        ValueError: A line is not an event, a group is unknown, or a number is invalid.

    Example:
        >>> case = read("# ties | twice | max latest=1 best=1\nsave 10 0.9 | 10*\nsave 20 0.9 | 20*")[0]
        >>> case.rows[1][1]
        Expected(steps=(20,), best=20, refused=False)
    """
    found = []
    for block in text.strip().split("\n\n"):
        head, *lines = (" ".join(line.split()) for line in block.splitlines())
        group, name, rules = (part.strip() for part in head.removeprefix("#").split("|"))
        if group not in GROUPS:
            raise ValueError(f"unknown group {group!r} in {head!r}; known: {', '.join(GROUPS)}")
        found.append(_case(group, name, rules.split(), tuple(lines)))
    return tuple(found)


def _case(group: str, name: str, words: list[str], text: tuple[str, ...]) -> Case:
    mode, *counts = words
    current = first = Rules(mode=_mode(mode), **{"keep_latest": 1, "keep_best": 0, **_counts(counts)})
    rows = []
    for line in text:
        event, expected = (part.split() for part in line.split("|"))
        if event[0] == "rules":
            current = replace(current, **_counts(event[1:]))
        rows.append((_event(event, current), _expected(expected)))
    return Case(group=group, name=name, rules=first, text=text, rows=tuple(rows))


def _counts(words: list[str]) -> dict[str, Any]:
    """Return the fields of Rules that `latest=2 seconds=60` names."""
    pairs = (word.split("=") for word in words)
    return {f"keep_{name}": float(value) if name == "seconds" else int(value) for name, value in pairs}


def _mode(word: str) -> Mode:
    if word not in ("max", "min"):
        raise ValueError(f"a mode is max or min, got {word!r}")
    return "max" if word == "max" else "min"


def _event(words: list[str], rules: Rules) -> Event:
    match words:
        case ["save", step, metric]:
            return Save(step=int(step), metric=None if metric == "-" else float(metric))
        case ["save", step, metric, "at", seconds]:
            return Save(step=int(step), metric=None if metric == "-" else float(metric), at=float(seconds))
        case ["validate", step, metric]:
            return Validated(step=int(step), metric=float(metric))
        case ["metric", step, metric]:
            return Late(step=int(step), metric=float(metric))
        case ["restart"]:
            return Restart()
        case ["rules", *_]:
            return Change(rules=rules)
        case ["resume", ("latest" | "best") as which]:
            return Resume(which="best" if which == "best" else "latest")
        case ["resume", step]:
            return Resume(which=int(step))
    raise ValueError(f"{' '.join(words)!r} is no event")


def _expected(words: list[str]) -> Expected:
    refused = words[:1] == ["!"]
    steps = words[1:] if refused else words
    best = next((int(word[:-1]) for word in steps if word.endswith("*")), None)
    return Expected(steps=tuple(int(word.rstrip("*")) for word in steps), best=best, refused=refused)
