"""Which way a square matrix lies where behaviour does not tell it: as others of its kind, if these agree."""

import numpy as np
import pytest

from parity.checks.models.pieces import LeafPart
from parity.checks.models.quiet import likely_turn
from parity.checks.models.used import LeafUse


def part(leaf, *shape):
    return LeafPart(leaf, 0, 1, "parameter", np.arange(int(np.prod(shape))).reshape(shape))


TURNED = (part("up.weight", 6, 3), part("up.kernel", 3, 6))
AS_IT_IS = (part("table.weight", 9, 3), part("table.kernel", 9, 3))
OTHER_KIND = (part("table.weight", 9, 3), part("table.embedding", 9, 3))


@pytest.mark.parametrize(
    ("beside", "order"),
    [
        ((TURNED,), (1, 0)),
        ((TURNED, OTHER_KIND), (1, 0)),
        ((AS_IT_IS,), (0, 1)),
        ((TURNED, AS_IT_IS), (0, 1)),
        ((), (0, 1)),
    ],
)
def test_a_square_matrix_lies_as_others_of_its_kind(beside, order):
    square = part("q.weight", 4, 4), part("q.kernel", 4, 4)
    assert likely_turn(*square, [*beside, square]) == order
    assert likely_turn(*TURNED, list(beside)) == (1, 0)


def test_of_leaves_without_a_kind_those_count_that_are_taken_alike():
    """A port of functions names its leaves at will: a table that is indexed says nothing of a product."""
    square, head = (part("r.weight", 4, 4), part("r", 4, 4)), (part("head.weight", 2, 4), part("head", 4, 2))
    tables = [(part(name, 9, n), part(name, 9, n)) for name, n in (("emb", 4), ("places", 2))]
    pairs = [*tables, head, square]
    assert likely_turn(*square, pairs) == (0, 1), "most matrices lie as they are"
    taken = {"r.weight": "linear", "head.weight": "linear", "emb": "embedding", "places": "__getitem__"}
    given = {"r": "dot_general", "head": "dot_general", "emb": "gather", "places": "gather"}
    uses = tuple({leaf: LeafUse(at, kind) for at, (leaf, kind) in enumerate(one.items())} for one in (taken, given))
    assert likely_turn(*square, pairs, uses) == (1, 0)
    others = tuple({leaf: LeafUse(0, "") for leaf in one} for one in (taken, given))
    assert likely_turn(*square, pairs, others) == (0, 1), "where it is not seen how they are taken"
