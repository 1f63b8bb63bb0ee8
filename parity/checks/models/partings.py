"""Where two models of users part: with rules that are given, or with those that behaviour proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checks.models.mapping import ModelMap, propose
from parity.checks.models.maps import opened_models
from parity.checks.models.nearer import nearer_rules
from parity.checks.models.opening import open_subjects
from parity.checks.models.ordered import likely_maps
from parity.checks.models.parting import Parting, where_parted
from parity.checks.models.subjects import Subjects
from parity.mapping import LeafRule, read_rules

__all__ = ["find_parting", "parting_of"]


def find_parting(
    *, torch: Any = None, jax: Any = None, inputs: object = None, rules: Path | Sequence[LeafRule] | None = None,
    torch_args: Any = (), jax_args: Any = (),
) -> Parting:  # fmt: skip
    """Return the first pair of modules of two models whose values part in float64.

    Args:
        torch: As of `parity.map_models`.
        jax: As of `parity.map_models`.
        inputs: As of `parity.map_models`.
        rules: RULES.toml or rules; by default the map that is proposed, if every row of it is sure.
        torch_args: As of `parity.map_models`.
        jax_args: As of `parity.map_models`.

    Returns:
        `holds` where nothing parts; `broken` with both modules, both values, their settings and the likely cause;
        `inconclusive` where the map is not sure, or no module could be looked at.

    Raises:
        SpecError: There are not two models, one cannot be built or called, or the rules are not complete.
        CheckpointError: The rules cannot be read.
    """
    first, second = opened_models({"torch": (torch, torch_args), "jax": (jax, jax_args)})
    return parting_of(open_subjects(first, second, inputs), rules)


def parting_of(
    subjects: Subjects, rules: Path | Sequence[LeafRule] | None, found: ModelMap | None = None,
    nearer: list[LeafRule] | None = None,
) -> Parting:  # fmt: skip
    """Return where two models that are open part; see `find_parting`.

    Args:
        subjects: The models.
        rules: RULES.toml or rules; None for the map that is proposed.
        found: That map, where it was looked for already.
        nearer: The map under which both do most alike, likewise; see `nearer_rules`.
    """
    if rules is not None:
        given = read_rules(rules).rules if isinstance(rules, Path) else list(rules)
        subjects.require_repeatable()
        return where_parted(subjects, given)
    found = found or propose(subjects)
    if not found.unsure and not found.alone:
        return where_parted(subjects, found.rules)
    names = (subjects.first.name, subjects.second.name)
    reasons = [f"{' + '.join(row.first)}: {row.why}" for row in found.unsure]
    reasons += [f"{what}: {why}" for what, why in found.alone]
    note = f"{len(reasons)} rows of the map are not sure, so this is not either: {reasons[0]}; give --rules"
    partings = [where_parted(subjects, likely) for likely in _likely(subjects, found, nearer)]
    if not partings:
        return Parting("inconclusive", names, notes=(note,))
    # under a wrong map modules part that are right: the map under which most calls agree is the likely one
    parting = max(partings, key=lambda one: (not one.what, one.compared))
    return replace(parting, verdict="inconclusive", notes=(note, *parting.notes))


def _likely(subjects: Subjects, found: ModelMap, nearer: list[LeafRule] | None) -> list[list[LeafRule]]:
    """Return complete maps that are likely: by behaviour and names, by the order of calls, and by likeness."""
    rules = [row.rule for row in found.rows if row.rule is not None]
    whole = len(rules) == len(found.rows) and not found.alone
    ordered = likely_maps(subjects, found.matched) if found.matched is not None else []
    nearer = nearer or nearer_rules(subjects, found)
    maps = [*([rules] if whole else []), *ordered]
    return maps if nearer is None or nearer in maps else [*maps, nearer]
