"""Rules for a restore into a tree of another structure: which saved leaf goes where, and the order of its axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parity.errors import CheckpointError
from parity.mapping import by_keys, fill_keys

__all__ = ["Renames", "Rule", "RuleLike"]


@dataclass(frozen=True)
class Rule:
    """A saved leaf, or all below a name, under the name that the template has for it.

    Example:
        >>> Rule("encoder.*.weight", "layers.*.kernel", permute=(1, 0)).apply("encoder.3.weight")
        'layers.3.kernel'
        >>> Rule("encoder", "backbone").apply("encoder.3.bias")
        'backbone.3.bias'
    """

    saved: str
    """Name in the checkpoint, of a leaf or of a container; `*` stands for any one key."""
    template: str
    """Name in the template; its `*` stand for the same keys, in the same order."""
    permute: tuple[int, ...] = ()
    """The new order of the axes, as `numpy.transpose` takes it; empty for the saved one."""
    reshape: bool = False
    """Whether the array takes the shape of the template's, its elements in C order; after `permute`."""

    def __post_init__(self) -> None:
        if self.saved.split(".").count("*") != self.template.split(".").count("*"):
            raise CheckpointError(f"rule {self.saved!r} to {self.template!r}: the names have different numbers of *")

    def apply(self, name: str) -> str | None:
        """Return the name that the template has for a saved one; None if the rule is not about it."""
        found = by_keys(self.saved, below=True).fullmatch(name)
        if found is None:
            return None
        *stars, rest = found.groups()
        return fill_keys(self.template, stars) + rest


RuleLike = Iterable[Rule] | Mapping[str, str]
"""Rules, or a mapping from saved names to those of the template."""


class Renames:
    """The rules of one restore; each saved leaf has one name in the template."""

    def __init__(self, rules: RuleLike) -> None:
        self.rules = [Rule(*pair) for pair in rules.items()] if isinstance(rules, Mapping) else list(rules)
        self.used: set[Rule] = set()

    def find(self, name: str) -> tuple[str, Rule | None]:
        """Return the template's name for a saved one, and the rule that gives it.

        Raises:
            CheckpointError: Two rules are about it.
        """
        found = [(new, rule) for rule in self.rules if (new := rule.apply(name)) is not None]
        if len(found) > 1:
            both = " and ".join(repr(rule.saved) for _, rule in found[:2])
            raise CheckpointError(f"two rules are about the saved leaf {name}: {both}; leave one")
        if not found:
            return name, None
        self.used.add(found[0][1])
        return found[0]

    def require_used(self) -> None:
        """Raise CheckpointError if a rule is about nothing that was saved: its name may be misspelled."""
        idle = [
            (f"{r.saved} -> {r.template}", "no saved leaf has this name") for r in self.rules if r not in self.used
        ]
        if idle:
            raise CheckpointError("rules that are about nothing in the checkpoint:", idle)
