"""A map as RULES.toml: rows that are sure, shortened by `*` where that says the same, and the others as comments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parity.checks.models.mapping import ModelMap
from parity.checks.models.proof import MapProof
from parity.errors import CheckpointError
from parity.mapping import ConversionRules, LeafRule, rules_text

__all__ = ["map_text", "shortened"]


def shortened(rules: Sequence[LeafRule], names: Sequence[str]) -> list[LeafRule]:
    """Return fewer rules that give every name the same place: numbers of layers become `*`.

    Args:
        rules: One for each leaf or group of leaves.
        names: All names of the first model.

    Example:
        >>> rules = [LeafRule((f"h.{n}.w",), (f"layers.{n}.k",)) for n in range(2)]
        >>> [(one.source, one.target) for one in shortened(rules, ["h.0.w", "h.1.w"])]
        [(('h.*.w',), ('layers.*.k',))]
    """
    groups: dict[LeafRule, list[LeafRule]] = {}
    for rule in rules:
        groups.setdefault(_starred(rule), []).append(rule)
    made: list[LeafRule] = []
    for pattern, members in groups.items():
        made += [pattern] if len(members) > 1 and _same(pattern, members, names) else members
    return made


def _starred(rule: LeafRule) -> LeafRule:
    """Return a rule with a `*` for each number that all of its names have, in the same order."""
    if any("*" in name.split(".") for name in (*rule.source, *rule.target)):
        return rule
    numbers = {tuple(key for key in name.split(".") if key.isdigit()) for name in (*rule.source, *rule.target)}
    if len(numbers) != 1 or not next(iter(numbers)):
        return rule
    stars = [
        tuple(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in group) for group in (rule.source, rule.target)
    ]
    return LeafRule(stars[0], stars[1], rule.transforms, rule.collection)


def _same(pattern: LeafRule, members: Sequence[LeafRule], names: Sequence[str]) -> bool:
    """Return whether a rule takes what some rules take, to where they take it, and nothing else."""
    wanted = {(one.source, one.target) for one in members}
    try:
        placed = ConversionRules([pattern]).place(names)
    except CheckpointError:
        return False
    return {(one.source, one.target) for one in placed if one.rule is pattern} == wanted


def map_text(found: ModelMap, proof: MapProof | None, names: Sequence[str], title: str) -> str:
    """Return RULES.toml of a map.

    Args:
        found: The map.
        proof: What its proof found; None where there was none.
        names: All names of the first model, those of tied leaves too.
        title: What was mapped to what, for the first line.

    Raises:
        CheckpointError: No row is sure.
    """
    rules = shortened(found.rules, names)
    if not rules:
        raise CheckpointError("no row is sure, so there is nothing to write")
    said = "not proven" if proof is None else f"the proof: {proof.verdict}"
    head = f"# {title}: {len(found.rules)} of {len(found.rows)} rows sure; {said}\n\n"
    return head + rules_text(rules) + "".join(_comment(found))


def _comment(found: ModelMap) -> list[str]:
    """Return the rows that are not sure, as comments: nothing reads them until someone decides."""
    lines = []
    for row in found.unsure:
        lines.append(f"\n# unsure: {row.why}\n")
        if row.rule is not None:
            lines += [f"# {line}\n" for line in rules_text([row.rule]).splitlines()]
        else:
            lines.append(f"# {' + '.join(row.first)} and {' + '.join(row.second)}\n")
    for what, why in found.alone:
        lines.append(f"\n# without a counterpart: {what}: {why}\n")
    return lines
