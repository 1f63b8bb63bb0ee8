"""Parameter groups by rules on names, kinds and shapes: the same rules give the same groups on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from parity.errors import SpecError

__all__ = ["GroupRule", "assign_groups"]


@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """Which parameters a group takes, and the arguments it has of its own.

    A parameter must meet every condition that is given; a rule without conditions takes all that the others leave.
    """

    label: str
    """Name of the group; learning rates given with an update are keyed by it."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that differ from the optimizer's, such as `weight_decay`; `optimizer` names another class."""
    names: tuple[str, ...] = ()
    """Patterns of neutral names, as of a shell: `*.bias`; one of them must match."""
    kinds: tuple[str, ...] = ()
    """Kinds of parameters, as the caller names them: `bias`, `embedding`."""
    ndim: tuple[int, ...] = ()
    """Numbers of dimensions; `(2,)` are matrices."""

    @property
    def is_rest(self) -> bool:
        """Return whether the rule takes what the others leave."""
        return not (self.names or self.kinds or self.ndim)

    def matches(self, name: str, shape: Sequence[int], kind: str | None) -> bool:
        """Return whether a parameter meets every condition; one whose kind is None meets none on kinds."""
        return (
            (not self.names or any(fnmatchcase(name, pattern) for pattern in self.names))
            and (not self.kinds or kind in self.kinds)
            and (not self.ndim or len(shape) in self.ndim)
        )


def assign_groups(
    rules: Sequence[GroupRule], shapes: Mapping[str, Sequence[int]], kinds: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the label of the group of each parameter.

    Args:
        rules: At least one; labels differ, and one rule at most takes the rest.
        shapes: Neutral name to shape.
        kinds: Neutral name to kind; needed where a rule asks for kinds.

    Raises:
        SpecError: A rule that takes nothing, a parameter that two rules take or none does, two rules of one label.

    Example:
        >>> rules = [GroupRule(label="matrices", ndim=(2,)), GroupRule(label="others", arguments={"weight_decay": 0})]
        >>> assign_groups(rules, {"layer.weight": (3, 2), "layer.bias": (3,)})
        {'layer.weight': 'matrices', 'layer.bias': 'others'}
    """
    labels = [rule.label for rule in rules]
    rest = [rule.label for rule in rules if rule.is_rest]
    if len(set(labels)) < len(labels) or not labels:
        raise SpecError("groups", f"need one label each, got {labels}")
    if len(rest) > 1:
        raise SpecError(
            "groups", f"{' and '.join(rest)} both take what the others leave; give one of them a condition"
        )
    if kinds is None and any(rule.kinds for rule in rules):
        raise SpecError("groups", "a rule asks for kinds; give the kind of each parameter")
    found: dict[str, str] = {}
    for name, shape in shapes.items():
        kind = kinds.get(name) if kinds else None
        takers = [rule.label for rule in rules if not rule.is_rest and rule.matches(name, shape, kind)] or rest
        if len(takers) != 1:
            many = f"the rules {' and '.join(takers)} both take it" if takers else "no rule takes it"
            raise SpecError(f"groups: {name}", f"{many}; each parameter belongs to one group")
        found[name] = takers[0]
    for rule in rules:
        if rule.label not in found.values():
            raise SpecError(f"groups: {rule.label}", f"takes none of the parameters {', '.join(sorted(shapes)[:8])}")
    return found
