"""Where two models of users part: with rules that are given, or with those that behaviour proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checks.models.mapping import propose
from parity.checks.models.maps import opened_models
from parity.checks.models.opening import open_subjects
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


def parting_of(subjects: Subjects, rules: Path | Sequence[LeafRule] | None) -> Parting:
    """Return where two models that are open part; see `find_parting`."""
    if rules is not None:
        given = read_rules(rules).rules if isinstance(rules, Path) else list(rules)
        subjects.require_repeatable()
        return where_parted(subjects, given)
    found = propose(subjects)
    if not found.unsure and not found.alone:
        return where_parted(subjects, found.rules)
    names = (subjects.first.name, subjects.second.name)
    reasons = [f"{' + '.join(row.first)}: {row.why}" for row in found.unsure]
    reasons += [f"{what}: {why}" for what, why in found.alone]
    note = f"{len(reasons)} rows of the map are not sure, so this is not either: {reasons[0]}; give --rules"
    likely = [row.rule for row in found.rows if row.rule is not None]
    if found.alone or len(likely) < len(found.rows):
        return Parting("inconclusive", names, notes=(note,))
    parting = where_parted(subjects, likely)
    return replace(parting, verdict="inconclusive", notes=(note, *parting.notes))
