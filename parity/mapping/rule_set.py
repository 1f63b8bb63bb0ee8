"""Rules over the names of a whole tree: each name gets one place, and what no rule takes keeps its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from parity.errors import CheckpointError
from parity.mapping.names import by_keys, fill_keys
from parity.mapping.parts import Tie
from parity.mapping.row import ConversionRule
from parity.mapping.rule import LeafRule, RulePlacement

__all__ = ["ConversionRules"]


class ConversionRules:
    """Rules and the placements that they give for the names of a checkpoint.

    Args:
        rules: In any order; no two may take one name.

    Example:
        >>> turned = ConversionRule(torch=("layers.*.weight",), jax=("layers.*.kernel",), transpose=True)
        >>> rules = ConversionRules([turned])
        >>> for one in rules.place(["layers.0.weight", "layers.0.bias"]):
        ...     print(*one.source, *one.target, one.rule.how or "as it is")
        layers.0.weight layers.0.kernel transposed
        layers.0.bias layers.0.bias as it is
    """

    def __init__(self, rules: Sequence[LeafRule | ConversionRule] = ()) -> None:
        self.rules = tuple(one.rule if isinstance(one, ConversionRule) else one for one in rules)

    def place(self, names: Sequence[str]) -> list[RulePlacement]:
        """Return where each PyTorch name goes; a name without a rule keeps its own.

        Raises:
            CheckpointError: Two rules take one name, a rule takes none, two names go to one path, a path lies below
                another, a rule that takes several names lacks one (any of tied names is enough), or the layers of a
                stack are not numbered from 0 without a gap.
        """
        taken: dict[str, LeafRule] = {}
        placements = []
        for rule in self.rules:
            found = self._fill(rule, names)
            if not found:
                raise CheckpointError(
                    f"the rule {' + '.join(rule.source)} -> {' + '.join(rule.target)} takes no name of the checkpoint"
                )
            for placement in found:
                for name in placement.source:
                    if name in taken:
                        both = f"{' + '.join(taken[name].source)} and {' + '.join(rule.source)}"
                        raise CheckpointError(f"two rules take {name}: {both}; leave one")
                    taken[name] = rule
            placements += found
        placements += _unchanged(names, taken)
        self._check_paths(placements)
        order = {name: at for at, name in enumerate(names)}
        return sorted(placements, key=lambda placement: order[placement.source[0]])

    def place_back(self, paths: Sequence[str]) -> list[RulePlacement]:
        """Return where each path of JAX comes from; a path without a rule keeps its own name.

        Raises:
            CheckpointError: Two rules take one path, or a rule takes none or lacks one.
        """
        taken: dict[str, LeafRule] = {}
        placements = []
        for rule in self.rules:
            bound = _bind(rule.target, paths)
            if not bound:
                raise CheckpointError(f"the rule {' + '.join(rule.source)} takes no path of the checkpoint")
            for stars, members in bound.items():
                made = tuple(path for path in members if path is not None)
                if len(made) < len(members):
                    raise CheckpointError(f"{made[0]}: its rule needs {len(members)} paths, and not all are there")
                for path in made:
                    if path in taken:
                        raise CheckpointError(f"two rules take {path}; leave one")
                    taken[path] = rule
                names = rule.source if rule.stacks else tuple(fill_keys(name, stars) for name in rule.source)
                placements.append(RulePlacement(names, made, rule))
        return placements + _unchanged(paths, taken)

    def _fill(self, rule: LeafRule, names: Sequence[str]) -> list[RulePlacement]:
        """Return the placements of one rule."""
        bound = _bind(rule.source, names)
        if rule.stacks:
            return _stack(rule, bound)
        placements = []
        for stars, members in bound.items():
            made = tuple(name for name in members if name is not None)
            if len(made) < len(members) and rule.ties:
                rule_here = _tied_less(rule, len(made))
            elif len(made) < len(members):
                lacking = fill_keys(rule.source[members.index(None)], stars)
                raise CheckpointError(f"a rule takes {' + '.join(rule.source)} together, and {lacking} is not there")
            else:
                rule_here = rule
            placements.append(RulePlacement(made, tuple(fill_keys(path, stars) for path in rule.target), rule_here))
        return placements

    @staticmethod
    def _check_paths(placements: Sequence[RulePlacement]) -> None:
        source: dict[str, str] = {}
        for placement in placements:
            for path in placement.target:
                if path in source:
                    raise CheckpointError(f"{source[path]} and {placement.source[0]} both go to {path}")
                source[path] = placement.source[0]
        for path in source:
            parts = path.split(".")
            for count in range(1, len(parts)):
                above = ".".join(parts[:count])
                if above in source:
                    raise CheckpointError(f"{source[above]} goes to {above}, and {source[path]} to {path} below it")


def _bind(patterns: Sequence[str], names: Sequence[str]) -> dict[tuple[str, ...], list[str | None]]:
    """Return the parts that stand for the `*`, to the name that each pattern takes with them."""
    bound: dict[tuple[str, ...], list[str | None]] = {}
    for at, pattern in enumerate(patterns):
        takes = by_keys(pattern)
        for name in names:
            if found := takes.fullmatch(name):
                bound.setdefault(found.groups(), [None] * len(patterns))[at] = name
    return bound


def _tied_less(rule: LeafRule, count: int) -> LeafRule:
    """Return a rule of tied names for those of a file that leaves some of them out, as safetensors of models do.

    The names are one parameter, so any of them says it.
    """
    tie = (Tie(count),) if count > 1 else ()
    return replace(rule, transforms=(*tie, *(one for one in rule.transforms if not isinstance(one, Tie))))


def _unchanged(names: Sequence[str], taken: Collection[str]) -> list[RulePlacement]:
    """Return placements for the names that no rule takes: each keeps its own."""
    return [RulePlacement((name,), (name,), LeafRule((name,), (name,))) for name in names if name not in taken]


def _stack(rule: LeafRule, bound: Mapping[tuple[str, ...], Sequence[str | None]]) -> list[RulePlacement]:
    """Return a placement for each value of the stars but the last, whose arrays are in the order of its numbers."""
    groups: dict[tuple[str, ...], dict[int, tuple[str, ...]]] = {}
    for stars, members in bound.items():
        made = tuple(name for name in members if name is not None)
        if not stars[-1].isdigit():
            raise CheckpointError(f"{made[0]}: the layers of a stack are counted, and {stars[-1]!r} is no number")
        if len(made) < len(members):
            lacking = fill_keys(rule.source[members.index(None)], stars)
            raise CheckpointError(f"a rule takes {' + '.join(rule.source)} together, and {lacking} is not there")
        groups.setdefault(stars[:-1], {})[int(stars[-1])] = made
    placements = []
    for stars, layers in groups.items():
        if sorted(layers) != list(range(len(layers))):
            gap = next(at for at in range(len(layers)) if at not in layers)
            raise CheckpointError(
                f"{fill_keys(rule.source[0], (*stars, str(gap)))} is not there, so the layers of a stack have a gap"
            )
        # layer by layer: what is joined and stacked is joined within each first
        names = tuple(name for at in range(len(layers)) for name in layers[at])
        placements.append(RulePlacement(names, tuple(fill_keys(path, stars) for path in rule.target), rule))
    return placements
