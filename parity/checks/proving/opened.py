"""Trainers as a caller of Python names them: modules, their names, or mappings of names to objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from parity import sides
from parity.checks.proving.sources import NAMES, PortSource
from parity.errors import SpecError, UnknownNameError

__all__ = ["sources_of"]


def sources_of(given: Mapping[str, tuple[Any, Any]], names: Mapping[str, str]) -> tuple[PortSource, PortSource]:
    """Return two trainers from what a caller gave for each framework.

    Args:
        given: Framework to what was given, one or a list, and to what its models are built with.
        names: What is asked for, to the name that it has in both.

    Raises:
        SpecError: There are not two, or a module cannot be imported.
        UnknownNameError: A name that nothing is asked for by.
    """
    for word in names:
        if word not in NAMES:
            raise UnknownNameError("part of a trainer", word, tuple(NAMES))
    found: list[PortSource] = []
    for framework, (made, args) in given.items():
        several = made if isinstance(made, list) else [] if made is None else [made]
        each = args if isinstance(args, list) else [args] * len(several)
        for one, arguments in zip(several, each, strict=True):
            named = dict(arguments) if isinstance(arguments, Mapping) else {}
            placed = () if isinstance(arguments, Mapping) else tuple(arguments)
            holder = sides.named_module(f"--{framework}", one) if isinstance(one, str) else one
            name = one if isinstance(one, str) else holder.__name__ if isinstance(holder, ModuleType) else framework
            found.append(PortSource(f"--{framework}", name, holder, names, placed, named))
    if len(found) != 2:
        raise SpecError("trainers", f"expected two, of torch and jax together, got {len(found)}")
    if found[0].name == found[1].name:
        found = [
            replace(one, name=f"{one.name} ({word})") for one, word in zip(found, ("first", "second"), strict=True)
        ]
    return found[0], found[1]
