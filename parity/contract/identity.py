"""The identity of a run: the text it is known by, the fields of that text, and which of them may change.

The harness compares identities and never asks what a field means.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w
import xxhash

__all__ = ["RunIdentity", "flatten_tables", "nest_fields", "parse_toml"]

MAX_BYTES = 1 << 20
"""Longest text; those of the presets take 1,500 bytes."""

MOST_DOTS = 100
"""In one line of TOML that is no comment; the name of a field has one or two."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML of bounded length; the time that tomllib takes for a dotted name grows with its square.

    Raises:
        ValueError: Not TOML, or too long.
        RecursionError: Nested too deeply.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES:,} characters")
    for n, line in enumerate(text.split("\n"), 1):
        if (dots := line.count(".")) > MOST_DOTS and not line.lstrip().startswith("#"):
            raise ValueError(f"line {n} has {dots} dots; at most {MOST_DOTS} fit in one line")
    return tomllib.loads(text)


def flatten_tables(tables: Mapping[str, Any]) -> dict[str, object]:
    """Return dotted name to value, for every leaf of nested tables.

    Example:
        >>> flatten_tables({"seed": 0, "optimizer": {"kind": "sgd", "lr": 0.1}})
        {'seed': 0, 'optimizer.kind': 'sgd', 'optimizer.lr': 0.1}
    """

    def walk(prefix: str, value: object) -> Iterator[tuple[str, object]]:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                yield from walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            yield prefix, value

    return dict(walk("", tables))


def nest_fields(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return nested tables of dotted names; the inverse of `flatten_tables`.

    Example:
        >>> nest_fields({"seed": 0, "optimizer.lr": 0.1})
        {'seed': 0, 'optimizer': {'lr': 0.1}}
    """
    tables: dict[str, Any] = {}
    for name, value in fields.items():
        *parents, leaf = name.split(".")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
        table[leaf] = value
    return tables


def _parse_fields(text: str) -> dict[str, object]:
    return flatten_tables(parse_toml(text))


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What makes a run this run and no other."""

    text: str
    """TOML; the run directory keeps it as `spec.toml`."""
    fields: Mapping[str, object]
    """Dotted name to value: what `parse` makes of `text`."""
    free: tuple[str, ...] = ()
    """First names of the fields that may change between the starts of a run, such as where to stop and how often to
    save: they change nothing that a step computes."""
    parse: Callable[[str], Mapping[str, object]] = _parse_fields
    """Returns the fields of a text that an earlier start wrote, perhaps by an earlier version of the trainer: fields
    that it lacks get their defaults."""

    @classmethod
    def of(cls, fields: Mapping[str, object], free: tuple[str, ...] = ()) -> RunIdentity:
        """Return the identity of a run that is described by its fields alone.

        Args:
            fields: Dotted name to a value that TOML has: str, int, float, bool, or a list of those.
            free: First names of the fields that may change between the starts of a run.

        Example:
            >>> print(RunIdentity.of({"steps": 100, "optimizer.lr": 0.5}, free=("steps",)).text)
            steps = 100
            <BLANKLINE>
            [optimizer]
            lr = 0.5
            <BLANKLINE>
        """
        return cls(text=tomli_w.dumps(nest_fields(fields)), fields=fields, free=free)

    def differences(self, text: str) -> dict[str, tuple[object, object]]:
        """Return the fields that may not change and in which the run of another text differs.

        Args:
            text: That of the other run.

        Returns:
            Name to the other run's value and to this one's.

        Raises:
            ValueError: As of `parse`: by default the text is no TOML, or too long.
        """
        theirs = self.parse(text)
        return {
            name: (theirs.get(name), self.fields.get(name))
            for name in sorted({*theirs, *self.fields})
            if theirs.get(name) != self.fields.get(name) and name.split(".")[0] not in self.free
        }

    def hash(self, data_digest: str) -> str:
        """Return 32 hex digits over the fields that may not change, and over the data; every seal of the run has it.

        Args:
            data_digest: Any text that is another for other data.
        """
        meaning = {name: value for name, value in self.fields.items() if name.split(".")[0] not in self.free}
        text = json.dumps([meaning, data_digest], sort_keys=True)
        return xxhash.xxh3_128_hexdigest(text.encode())
