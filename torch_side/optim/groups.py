"""Parameter groups of torch.optim, made from the same rules as those of `jax_side.optim`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from parity.errors import SpecError
from parity.state import GroupRule, assign_groups

__all__ = ["param_groups"]


def param_groups(
    rules: Sequence[GroupRule], named: Iterable[tuple[str, nn.Parameter]], kinds: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the groups that an optimizer of torch.optim takes, in the order of the rules.

    Args:
        rules: The rules; none of them may ask for another optimizer, which torch has as another object.
        named: Names and parameters, as `model.named_parameters()`.
        kinds: Name to kind of parameter, for rules that ask for kinds.

    Raises:
        SpecError: As of `assign_groups`, or a rule that asks for another optimizer.

    Example:
        >>> rules = [GroupRule(label="matrices", ndim=(2,)), GroupRule(label="others", arguments={"weight_decay": 0})]
        >>> groups = param_groups(rules, nn.Linear(2, 1).named_parameters())
        >>> [len(group["params"]) for group in groups], groups[1]["weight_decay"]
        ([1, 1], 0)
    """
    params = dict(named)
    for rule in rules:
        if "optimizer" in rule.arguments:
            raise SpecError(f"groups: {rule.label}", "asks for another optimizer; torch has that as another object")
    label_of = assign_groups(rules, {name: tuple(p.shape) for name, p in params.items()}, kinds)
    return [
        {"params": [p for name, p in params.items() if label_of[name] == rule.label], **rule.arguments}
        for rule in rules
    ]
