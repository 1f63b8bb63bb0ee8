"""The ledger of a conversion: what became of every leaf. Nothing is dropped without a line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

__all__ = ["Action", "Entry", "Ledger"]

Action = Literal["copied", "transformed", "reset", "refused", "left out"]


@dataclass(frozen=True)
class Entry:
    """One leaf of the source."""

    leaf: str
    action: Action
    """`left out` is only what was asked to be, such as all but the parameters."""
    target: str = ""
    """Where it is in the target."""
    how: str = ""
    """What happened to it, or why it did not cross."""
    nbytes: int = 0


@dataclass
class Ledger:
    """Every leaf of one conversion."""

    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was inferred rather than read, as sentences."""

    def add(self, leaf: str, action: Action, target: str = "", how: str = "", size: int = 0) -> None:
        """Write down what became of a leaf.

        Args:
            leaf: Its name in the source.
            action: What became of it.
            target: Where it is in the target; empty where it is not.
            how: What happened to it, or why it did not cross.
            size: Bytes of its array; 0 for a scalar.
        """
        self.entries.append(Entry(leaf, action, target, how, size))

    def of(self, action: Action) -> list[Entry]:
        """Return the leaves with one outcome."""
        return [entry for entry in self.entries if entry.action == action]

    @property
    def refused(self) -> bool:
        """Return whether anything was refused, so that nothing is written."""
        return bool(self.of("refused"))

    @property
    def crossed(self) -> bool:
        """Return whether anything is in the target; where nothing is, nothing is written."""
        return bool(self.of("copied") or self.of("transformed"))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        counts = {action: len(self.of(action)) for action in get_args(Action)}
        return {
            "schema": "parity.ledger/1",
            "counts": counts,
            "entries": [asdict(entry) for entry in self.entries],
            "notes": list(self.notes),
        }
