"""The map of two models: rows that are sure, as rules, and those that are not, with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.checks.models.assembly import LeafGroup, groups_of, rule_of
from parity.checks.models.draws import drawn
from parity.checks.models.likeness import Alike
from parity.checks.models.pieces import LeafPart
from parity.checks.models.proposal import Matched, match_models
from parity.checks.models.subjects import Subjects
from parity.checks.models.used import takers_of, uses_of
from parity.mapping import LeafRule

__all__ = ["MapRow", "ModelMap", "map_of", "propose", "with_rules"]


@dataclass(frozen=True)
class MapRow:
    """Leaves of one model and those of the other that are the same values."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    rule: LeafRule | None
    """None where no row of RULES.toml says it."""
    sure: bool
    why: str
    """What decided; for a row that is not sure, the reason."""


@dataclass(frozen=True)
class ModelMap:
    """What was found of two models."""

    rows: tuple[MapRow, ...]
    alone: tuple[tuple[str, str], ...]
    """Leaves without a counterpart: which, and why."""
    agree: bool
    """Whether both models computed the same at equal values of all leaves of one extent."""
    notes: tuple[str, ...] = ()
    matched: Matched | None = None
    """What behaviour told of the pieces."""

    @property
    def equal_sizes(self) -> bool:
        """Return whether the leaves of both models have as many elements in all."""
        if self.matched is None:
            return False
        first, second = (sum(one.index.size for one in some) for some in (self.matched.first, self.matched.second))
        return first == second

    @property
    def rules(self) -> list[LeafRule]:
        """Return the rules of the rows that are sure."""
        return [row.rule for row in self.rows if row.sure and row.rule is not None]

    @property
    def unsure(self) -> list[MapRow]:
        """Return the rows that are not sure."""
        return [row for row in self.rows if not row.sure]


def with_rules(found: ModelMap, rules: Sequence[LeafRule]) -> ModelMap:
    """Return a map with other likely rules: those that behaviour told stay sure, the others stay unsure."""
    sure = [row for row in found.rows if row.sure and row.rule in rules]
    told = [row.rule for row in sure]
    why = "what they do does not tell it; the proof is under the order in which they are called or listed"
    rows = [MapRow(one.source, one.target, one, False, why) for one in rules if one not in told]
    return replace(found, rows=(*sure, *rows), alone=())


def propose(subjects: Subjects) -> ModelMap:
    """Return which leaf of one model is which of the other.

    Args:
        subjects: The models.

    Raises:
        SpecError: A model cannot be called, gives another output when it is called again, or one that is not finite.
    """
    return map_of(subjects, match_models(subjects))


def map_of(subjects: Subjects, matched: Matched) -> ModelMap:
    """Return the rows of what was told of two models."""
    reasons = _reasons(matched)
    rows = []
    for group in groups_of([*matched.sure, *(match for match, _ in matched.unsure)]):
        rows.append(_row(subjects, group, reasons, matched))
    names = [subjects.first.name] * len(matched.first) + [subjects.second.name] * len(matched.second)
    owner = dict(zip((*matched.first, *matched.second), names, strict=True))
    tied = {value.size: leaf for leaf, value in subjects.first.leaves.items() if leaf in subjects.first.ties}
    alone = tuple(
        (f"{owner[piece]}: {piece}", tied_why)
        if (tied_why := _tied_reason(subjects, tied.get(piece.index.size)))
        else _taken_twice(subjects, piece, matched) or (f"{owner[piece]}: {piece}", why)
        for piece, why in matched.alone
    )
    order = {leaf: at for at, leaf in enumerate(subjects.first.leaves)}
    rows.sort(key=lambda row: order[row.first[0]])
    notes = [note for note in (subjects.inputs.note, *subjects.first.notes, *subjects.second.notes) if note]
    return ModelMap(tuple(rows), alone, matched.agree, tuple(notes), matched)


def _tied_reason(subjects: Subjects, leaf: str | None) -> str:
    """Return why a leaf of the second model may be over: its like in the first has two names for one parameter."""
    if leaf is None:
        return ""
    names = " and ".join((leaf, *subjects.first.ties[leaf]))
    return f"no leaf is left; {names} are one parameter of {subjects.first.name}, which is likely two here"


def _taken_twice(subjects: Subjects, piece: LeafPart, matched: Matched) -> tuple[str, str] | None:
    """Return that the other model takes one leaf of the extents of a piece at two places: tied, as of a head.

    Of several leaves of these extents that one is over which is taken last: a table is read before a head is taken.
    """
    both = (matched.first, matched.second)
    at = int(piece in matched.first)  # the model that ties
    if piece.count > 1 or piece.index.ndim < 2:
        return None
    there, here = (
        list(dict.fromkeys(one.leaf for one in pieces if one.key == piece.key and one.count == 1))
        for pieces in (both[at], both[1 - at])
    )
    (model, inputs), (own, own_inputs) = subjects.both[at], subjects.both[1 - at]
    values, own_values = (
        {leaf: drawn(value.shape, "statistic" if leaf in each.statistics else "parameter", (59, number))
         for number, (leaf, value) in enumerate(each.leaves.items())} for each in (model, own)
    )  # fmt: skip
    for leaf in there:
        takers = list(dict.fromkeys(takers_of(model, values, inputs, leaf)))
        if len(takers) > 1:
            uses = uses_of(own, own_values, own_inputs)
            last = max(here, key=lambda one: uses[one].number) if uses is not None else piece.leaf
            return f"{own.name}: {last}", (
                f"tied in {model.name}, which takes {leaf} at {len(takers)} places ({', '.join(takers)}), and has no "
                f"leaf of its own for {last}"
            )
    return None


def _reasons(matched: Matched) -> dict[Alike, str]:
    return dict(matched.unsure)


def _row(subjects: Subjects, group: LeafGroup, reasons: dict[Alike, str], matched: Matched) -> MapRow:
    """Return one row; it is sure where each of its pieces is, and a rule says it."""
    doubts = [reasons[one] for one in group.matches if one in reasons]
    told = defaultdict(set)
    for one in group.matches:
        told[0].add(one.first)
        told[1].add(one.second)
    whole = all(
        piece in told[at]
        for at, (pieces, leaves) in enumerate(((matched.first, group.first), (matched.second, group.second)))
        for piece in pieces
        if piece.leaf in leaves
    )
    rule = rule_of(group, subjects.first, subjects.second) if whole else None
    if doubts:
        return MapRow(group.first, group.second, rule, False, doubts[0])
    if not whole:
        return MapRow(group.first, group.second, None, False, "a part of them has no counterpart")
    if rule is None:
        why = "no row of RULES.toml says it"
        if any(leaf in subjects.second.ties for leaf in group.second):
            why += ": the second model ties names; give the models in the other order"
        return MapRow(group.first, group.second, None, False, why)
    return MapRow(group.first, rule.target, rule, True, _evidence(group))


def _evidence(group: LeafGroup) -> str:
    kinds = {one.why for one in group.matches}
    if kinds == {"behaviour"}:
        return "behaviour"
    if "outputs" in kinds:
        return "what it does to the outputs; the gradients part"
    if "module" in kinds:
        return "no gradient reaches it; it is the only one of its shape beside leaves that were told"
    if "gates" in kinds:
        return "no gradient reaches it; its rounding vanishes without the same leaves"
    return "the only one of its shape that is left"
