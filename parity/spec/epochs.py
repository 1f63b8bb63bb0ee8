"""Intervals in epochs: texts such as `"2 epochs"` in place of a number of steps, converted by the run's own data.

A RunSpec holds steps alone, so a run is described, and hashed, as if the steps had been given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from parity.errors import SpecError
from parity.policy import INT32
from parity.spec.run import RunSpec

__all__ = ["BatchesPerEpoch", "in_steps", "is_epochs", "take_epochs"]

FIELDS = ("steps", "save.every", "validate_every")
"""Dotted names of the fields that may be given in epochs."""

BatchesPerEpoch = Callable[[RunSpec], int]
"""Returns the batches that a run takes from its data in one epoch."""

_EPOCHS = re.compile(r"([1-9][0-9]{0,8}) epochs?")


def is_epochs(value: object) -> bool:
    """Return whether a value is a number of epochs.

    Example:
        >>> is_epochs("1 epoch"), is_epochs("20 epochs"), is_epochs("0 epochs"), is_epochs(20)
        (True, True, False, False)
    """
    return isinstance(value, str) and _EPOCHS.fullmatch(value) is not None


def take_epochs(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the nested tables of a spec without the fields that are given in epochs, and those by dotted name.

    Example:
        >>> take_epochs({"name": "a", "save": {"every": "1 epoch", "keep_best": 2}})
        ({'name': 'a', 'save': {'keep_best': 2}}, {'save.every': '1 epoch'})
    """
    rest, asked = deepcopy(dict(tables)), {}
    for name in FIELDS:
        *parents, leaf = name.split(".")
        table: Any = rest
        for parent in parents:
            table = table.get(parent) if isinstance(table, dict) else None
        if isinstance(table, dict) and is_epochs(table.get(leaf)):
            asked[name] = table.pop(leaf)
    return rest, asked


def in_steps(spec: RunSpec, asked: Mapping[str, str], per_epoch: BatchesPerEpoch) -> RunSpec:
    """Return a spec with the fields that were given in epochs, as steps.

    Args:
        spec: The run; its own values of these fields are replaced.
        asked: Dotted name to a number of epochs.
        per_epoch: Counts the batches of an epoch; called once, if anything was asked for.

    Raises:
        SpecError: A field has more steps than a run can have.

    Example:
        >>> from parity.spec import preset
        >>> in_steps(preset("mlp-digits"), {"save.every": "2 epochs"}, lambda spec: 22).save.every
        44
    """
    if not asked:
        return spec
    batches, changes = per_epoch(spec), dict[str, Any]()
    for name, text in asked.items():
        changes[name] = int(text.partition(" ")[0]) * batches
        if changes[name] > INT32:
            raise SpecError(name, f"{text!r} of {batches} batches are {changes[name]} steps, more than {INT32}")
    if (every := changes.pop("save.every", None)) is not None:
        spec = replace(spec, save=replace(spec.save, every=every))
    return replace(spec, **changes) if changes else spec
