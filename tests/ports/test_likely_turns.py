"""Which way a square matrix lies where behaviour does not tell it: as others of its kind, if these agree."""

import numpy as np
import pytest

from parity.checks.models.pieces import LeafPart
from parity.checks.models.quiet import likely_turn


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
