"""Models that part and whose map behaviour does not tell: equal but for one change under the map that is nearest.

A fault that stands before most leaves makes all behind it do something else, and leaves hardly a row of the map that
is proven. A likely map under which the models part proves nothing by itself. One under which they are equal at all
draws of leaves but for one change of what they compute is a map all the same, and the change what parts them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from parity.checks.models import MappedModels, Subjects, nearer_rules, placed, prove, with_rules
from parity.checks.proving.losses import Pairing
from parity.checks.proving.program_causes import model_program_cause
from parity.checks.proving.verdict import PortStage

__all__ = ["lines_beside", "parted_but_for_a_change"]

BY_A_MAP = ("values exchanged: ", "value taken: ", "order: ", "layout: ", "transposed")
"""Words of changes that another map of the leaves might do as well: a right port under a wrong map shows these."""

WITHIN_LEAVES = ("repeats: ", "pairs: ", "in pairs of ")
"""Words of changes that no exchange of leaves or of their parts does, but another order within them may do."""


DOUBT = re.compile(r"note: (\d+) rows of the map are not sure, so this is not either: .*")
"""The line that says of how many rows a place of two modules depends."""

EQUAL = (" values are equal", " gradients are equal")
"""Words of causes with which both are equal under that map: no row of it is in doubt then."""


def lines_beside(lines: Sequence[str], cause: str) -> tuple[str, ...]:
    """Return lines of where two models part, with what is not sure of their map said no louder than it counts.

    Args:
        lines: Of the modules that part.
        cause: What was told of it; rows that stand behind a fault are not sure, whatever it is.
    """
    proven = any(words in cause for words in EQUAL)
    if not cause:
        return tuple(lines)
    short = [DOUBT.sub(r"note: \1 rows of the map are likely ones: what stands behind a fault tells none", one)
             for one in lines]  # fmt: skip
    return tuple(one for one, line in zip(short, lines, strict=True) if not (proven and DOUBT.fullmatch(line)))


def parted_but_for_a_change(subjects: Subjects, mapped: MappedModels) -> tuple[Pairing | None, PortStage] | None:
    """Return that two models part, with the map under which one change makes them equal; None where none does.

    Of a change that another map might do as well nothing is proven: it is said, and the stage is inconclusive.

    Args:
        subjects: The models.
        mapped: What was found of their map, which is neither proven nor broken.
    """
    found = mapped.found
    if found is None or found.agree or found.alone:
        return None  # models that compute the same with equal leaves of one extent may differ by the map alone
    nearer = nearer_rules(subjects, found)
    if nearer is None:
        return None
    placements, missing = placed(subjects, nearer)
    pairing = Pairing(subjects, placements)
    if missing or not (cause := model_program_cause(pairing)):
        return None
    if any(words in cause for words in BY_A_MAP):
        lines = mapped.text().splitlines()
        return None, PortStage("forward", "inconclusive", lines[0], lines=(
            f"under the likeliest map one change makes both equal, and another map may do so as well: {cause}",
            *lines[1:6],
        ))  # fmt: skip
    proof = prove(subjects, nearer)
    if proof.verdict != "broken":
        return None
    likely = replace(mapped, found=with_rules(found, nearer), proof=proof)
    lines = likely.text(most=len(found.rows) + 25).splitlines()  # rows that are not sure stand before it
    said = next((line for line in lines if line.startswith(("parts", "map"))), lines[0])
    told = sum(rule in found.rules for rule in nearer)
    note = (
        f"behaviour tells {told} of {len(nearer)} rows of the map, and that change makes both equal under the others"
    )
    more = [note]
    if any(words in cause for words in WITHIN_LEAVES):
        more.append("leaves in another order within their heads or parts may do so as well: give --rules if they are")
    return pairing, PortStage("forward", "broken", said, cause, tuple(more))
