"""Scenarios: the ways in which a run is stopped and resumed; each one has hidden a real bug from the others."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parity.capture import Leaf
from parity.checks.running import Mark
from parity.checks.scenarios import MEANINGS

__all__ = ["SCENARIOS", "Scenario", "plan_scenarios"]

SCENARIOS: Mapping[str, str] = {
    **{name: meaning for name, meaning in MEANINGS.items() if name != "at-zero"},
    "one-rank": "one of several processes is killed; all are resumed when the others have ended too",
    "other-count": "killed at stop_at, resumed by another number of processes (`resume_processes`)",
}
"""Those of the registry that a function can be driven in, as when it saves is its own affair, and two of its own."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scenario, with what it takes to drive it."""

    name: str
    kills: tuple[int, ...] = ()
    """Marks of the reference at which processes are killed, in turn; 0, of a later one: its first mark."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the process that resumes, or of the whole run."""
    processes: int | None = None
    """Processes that resume, where they are of another number than those that saved."""


def plan_scenarios(
    names: Sequence[str],
    marks: Sequence[Mark],
    stop: int,
    parameters: Mapping[str, inspect.Parameter],
    saves: Sequence[int],
    there: Collection[str] = (),
    processes: int = 1,
    resume_processes: int | None = None,
) -> tuple[list[Scenario], dict[str, str]]:
    """Return the scenarios that the run can be driven in, and the others with the reason.

    Args:
        names: Names of the scenarios.
        marks: Marks of the uninterrupted run.
        stop: Index of the mark at which the run is killed.
        parameters: Parameters of the training function.
        saves: Marks before which a checkpoint was saved.
        there: Files that the kill at `stop` leaves.
        processes: Processes that train together.
        resume_processes: Processes that resume in the scenario `other-count`; None where there is none.
    """
    planned: list[Scenario] = []
    closed: dict[str, str] = {}
    kept = [at for at in saves if at <= stop and (not there or set(marks[at].saved) <= set(there))]
    kills = _kills(marks, stop, _default(parameters, "validate_every"), saves)
    for name in names:
        if name in kills:
            if saves and kills[name][0] < saves[0] and name != "before-save":
                closed[name] = "nothing is saved before that step"
            else:
                planned.append(Scenario(name=name, kills=kills[name]))
        elif name == "intervals" and _intervals(parameters):
            planned.append(Scenario(name=name, options=_intervals(parameters)))
        elif name in ("best", "older") and "resume" in parameters and saves:
            which = "best" if name == "best" else marks[kept[0]].step if kept else 0
            if name == "older" and len(kept) < 2:
                closed[name] = "one checkpoint is kept"
            else:
                planned.append(Scenario(name=name, kills=(stop,), options={"resume": which}))
        elif name == "other-count" and resume_processes is not None:
            planned.append(Scenario(name=name, kills=(stop,), processes=resume_processes))
        elif (name == "extend" and "steps" in parameters) or (name == "one-rank" and processes > 1):
            planned.append(Scenario(name=name))
        else:
            closed[name] = _REASONS.get(name, "the run has no such step")
    return planned, closed


_REASONS = {
    "intervals": "the function takes neither save_every nor validate_every",
    "best": "the function takes no resume",
    "older": "the function takes no resume",
    "extend": "the function takes no steps",
    "one-rank": "the function trains in one process",
    "other-count": "no other number of processes is given (resume_processes)",
    "on-validation": "the function takes no validate_every",
    "off-validation": "the function takes no validate_every",
    "epoch-end": "no second epoch was seen",
    "mid-epoch": "no second epoch was seen",
    "before-save": "the first step is saved",
}


def _kills(marks: Sequence[Mark], stop: int, every: int | None, saves: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the scenarios in which a kill alone stops the run, with the marks of the kills.

    Args:
        marks: Marks of the uninterrupted run.
        stop: Index of the mark at which the run is killed.
        every: Steps between validations, where the function says so.
        saves: Marks before which a checkpoint was saved.
    """
    last = len(marks) - 1
    found: dict[str, tuple[int, ...]] = {
        "kill": (stop,),
        "again": (stop, 0),
        "third": (stop, min(stop + max(2, (last - stop) // 2), last)),
    }
    if saves:
        found["first-save"] = (saves[0],)
    if saves and saves[0] > 1:
        found["before-save"] = (saves[0] - 1,)
    epochs = epoch_ends(marks)
    if len(epochs) > 1:
        # what the end of an epoch does after a save at its last step is skipped by a resume from that save alone
        saved = [at for at in (*epochs[1:], epochs[0]) if at in saves and at < last]
        found["epoch-end"] = ((saved or epochs[1:])[0],)
        found["mid-epoch"] = (min((epochs[0] + epochs[1]) // 2 + 1, last),)
    if every:
        validation = (stop // every) * every
        found["on-validation"] = (max(1, validation),)
        found["off-validation"] = (max(1, validation - every // 2),)
    return found


def _default(parameters: Mapping[str, inspect.Parameter], name: str) -> int | None:
    found = parameters.get(name)
    return found.default if found is not None and isinstance(found.default, int) else None


def _intervals(parameters: Mapping[str, inspect.Parameter]) -> dict[str, int]:
    """Return other intervals than the function's own: neither multiples nor divisors of them."""
    return {
        name: (_default(parameters, name) or 4) * 2 + 1
        for name in ("save_every", "validate_every")
        if name in parameters
    }


def epoch_ends(marks: Sequence[Mark]) -> list[int]:
    """Return the marks at which an epoch had just begun: an iterator of the data anew, or a counter one higher.

    A counter is told by how it grows, whatever it is called: by one, every few steps. Of several
    the first that the loop's variables lead to counts.
    """
    leaves = [mark.snapshot.leaves for mark in marks]
    anew = [
        at
        for at in range(1, len(leaves))
        if any(_begins(path, leaf, leaves[at].get(path)) for path, leaf in leaves[at - 1].items())
    ]
    numbers = [path for path, leaf in leaves[0].items() if leaf.kind == "int" and all(path in one for one in leaves)]
    series = ([one[path].digest for one in leaves] for path in numbers)
    return anew or next(filter(None, map(_steps_up, series)), [])


def _begins(path: str, before: Leaf, after: Leaf | None) -> bool:
    return (
        after is not None
        and path.endswith(".yielded")
        and before.digest.isdigit()
        and after.digest.isdigit()
        and int(after.digest) < int(before.digest)
    )


def _steps_up(texts: Sequence[str]) -> list[int]:
    """Return where a number grows by one, twice or more, every few steps; empty otherwise."""
    try:
        values = [int(text) for text in texts]
    except ValueError:
        return []
    up = [at for at in range(1, len(values)) if values[at] != values[at - 1]]
    apart = [b - a for a, b in itertools.pairwise(up)]
    if not apart or any(values[at] != values[at - 1] + 1 for at in up):
        return []
    equal = max(apart) - min(apart) <= 1 < min(apart)  # the data of an epoch may not divide
    return up if equal and max(up[0], len(values) - up[-1]) <= max(apart) else []
