"""The label of a checkpoint: step, epoch, best metric and resolved config, which each of its files carries.

A file that was copied out of its checkpoint still says what it is. All labels of a checkpoint follow from the scalars
in its JSON file, and a restore compares each of them with that one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.contract import flatten_tables, parse_toml
from parity.errors import CheckpointError

__all__ = ["LABEL", "label_of", "require_labels"]

LABEL = ("step", "epoch", "best_metric", "config")
"""Names of the fields of a label."""

MOST_SHOWN = 100
"""Longest value in a message, in characters."""

ABSENT = "nothing"
"""What a message shows where a label lacks a field."""


def label_of(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label that follows from the host's half of a neutral state.

    Args:
        scalars: Leaf path to JSON value.

    Returns:
        `step`: completed steps. `epoch`: that of the last batch, from 0. `best_metric`: that of the best checkpoint
        when this one was saved, itself included; absent if there is none, so that what a loader takes in its place,
        `.get("best_metric", 0.0)` or an infinity, is taken. `config`: the resolved spec as nested tables.

    Raises:
        ValueError: The config is no TOML.
        RecursionError: It is nested too deeply.

    Example:
        >>> label_of({"counters.step": 3, "counters.epoch": 0, "best": None, "config.spec": "model.kind = 'mlp'"})
        {'step': 3, 'epoch': 0, 'config': {'model': {'kind': 'mlp'}}}
    """
    best = scalars.get("best")
    metric = best.get("metric") if isinstance(best, Mapping) else None
    return {
        "step": scalars.get("counters.step"),
        "epoch": scalars.get("counters.epoch"),
        **({} if metric is None else {"best_metric": metric}),
        "config": parse_toml(str(scalars.get("config.spec", ""))),
    }


def require_labels(path: Path, meta: str, found: Mapping[str, Mapping[str, Any]], scalars: Mapping[str, Any]) -> None:
    """Check that every file of a checkpoint has the label that follows from the scalars.

    In a checkpoint from before files were labelled no file has one, but for the step in the JSON file.

    Args:
        path: The checkpoint.
        meta: The JSON file that holds the scalars.
        found: File to what it holds, that one among them; only the fields of a label are looked at.
        scalars: The host's half of the neutral state.

    Raises:
        CheckpointError: A field is missing, unexpected, or another one; names the file and both values.
    """
    if all(not {*LABEL} & {*label} - ({"step"} if file == meta else set()) for file, label in found.items()):
        return
    source = path / meta
    try:
        expected = label_of(scalars)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: config.spec is no TOML: {_cut(str(error))}") from error
    for file, label in found.items():
        for name in LABEL:
            here, there = _fields(name, label), _fields(name, expected)
            for field in sorted({*here, *there}):
                ours, theirs = here.get(field, ABSENT), there.get(field, ABSENT)
                if ours != theirs:
                    raise CheckpointError(
                        f"{path / file} is labelled {field} {_cut(ours)}, but the scalars in {source} say "
                        f"{_cut(theirs)}: one of them was changed, or belongs to another checkpoint"
                    )


def _fields(name: str, label: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted name to the text of a value, for one field of a label; none where the label lacks it.

    A best metric of None, as it was written once, says as much as none.
    """
    if name not in label or (name == "best_metric" and label[name] is None):
        return {}
    try:
        if isinstance(value := label[name], Mapping):
            return {f"{name}.{key}": json.dumps(item) for key, item in flatten_tables(value).items()}
        return {name: json.dumps(value)}
    except (TypeError, ValueError, RecursionError):  # no JSON: a tensor, a key that is no text, a cycle
        return {name: f"a {type(label[name]).__name__} that no checkpoint of ours holds"}


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
