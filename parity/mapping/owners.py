"""What belongs to a parameter, such as a moment or an average: whose it is, and its counterpart on the other side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

from parity.mapping.pair import Pair

__all__ = ["owner_of", "pair_slots", "words_of"]


def pair_slots(params: Sequence[Pair], a: Mapping[str, str], b: Mapping[str, str]) -> list[Pair]:
    """Pair the slots of optimizers and averages: each belongs to a parameter, and goes over as that does.

    Args:
        params: The pairs of the parameters.
        a: Path to component of the trainer's slots, such as `optimizer.state[model.0.weight].exp_avg`.
        b: The same of its port.
    """
    slots: dict[tuple[str, str], list[str]] = {}
    for path, component in b.items():
        owner = owner_of(path, [pair.b for pair in params])
        if owner is not None:
            slots.setdefault((owner, component), []).append(path)
    found = []
    for path, component in a.items():
        owner = owner_of(path, [pair.a for pair in params])
        for pair in (one for one in params if one.a == owner):
            others = slots.get((pair.b, component), [])
            if len(others) == 1:
                found.append(Pair(path, others[0], component, pair.axes))
    return found


def owner_of(path: str, parameters: Sequence[str]) -> str | None:
    """Return the parameter that a slot belongs to: named in brackets, or by the longest common end of both paths.

    Args:
        path: Of the slot.
        parameters: Paths of the parameters.

    Example:
        >>> owner_of("optimizer.state[model.0.weight].exp_avg", ["model.0.weight", "model.0.bias"])
        'model.0.weight'
        >>> owner_of("opt_state[0].mu.first.kernel", ["model.first.kernel", "model.second.kernel"])
        'model.first.kernel'
    """
    for parameter in parameters:
        if f"[{parameter}]" in path:
            return parameter
    words = words_of(path)
    common = {parameter: _common(words, words_of(parameter)) for parameter in parameters}
    best = max(common.values(), default=0)
    owners = [parameter for parameter, count in common.items() if count == best]
    return owners[0] if best and len(owners) == 1 else None


def words_of(path: str) -> list[str]:
    """Return the names that a path is made of."""
    return [word for word in re.split(r"[.\[\]'\"]+", path) if word]


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many names two paths have in common at their ends."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
