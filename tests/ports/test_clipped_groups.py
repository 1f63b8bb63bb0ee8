"""Groups of leaves that are clipped each by its own norm, told from the scales that a first moment shows."""

import numpy as np
import pytest

from parity.checks.proving.clip_causes import clipped_groups
from parity.checks.proving.effective import TakenParts
from parity.checks.proving.update_causes import update_cause
from tests.ports.small_walks import MODEL, adam, gradients, momentum, still_zero, walk_of

GRADIENT = gradients(MODEL, {"x": np.ones((2, 5)), "y": np.zeros((2, 3))})[1]


def norm(leaves):
    return float(np.sqrt(sum(float((GRADIENT[leaf] ** 2).sum()) for leaf in leaves)))


def groups(scales, share=0.1):
    taken = TakenParts("m", {leaf: share * scale for leaf, scale in scales.items()}, {}, frozenset(), {})
    return [set(group) for group in clipped_groups(taken, GRADIENT)]


@pytest.mark.parametrize("parts", [("ws", "vbr"), ("w", "vs", "br")])
def test_groups_are_told_by_norms_that_are_one_number(parts):
    most = 0.5 * min(map(norm, parts))
    found = groups({leaf: most / norm(part) for part in parts for leaf in part})
    assert sorted(map(sorted, found)) == sorted(map(sorted, map(set, parts)))


def test_a_group_that_is_within_its_norm_is_left_as_it_is():
    parts = sorted(("w", "vs", "br"), key=norm)
    most = (norm(parts[0]) + norm(parts[1])) / 2
    assert len(groups({leaf: min(1.0, most / norm(part)) for part in parts for leaf in part})) == 3


def test_leaves_that_are_clipped_each_and_other_scales_are_no_groups():
    assert not groups({leaf: 0.1 / norm(leaf) for leaf in MODEL})
    assert not groups({leaf: 0.5 if leaf in "wb" else 1.0 for leaf in MODEL})
    assert not groups(dict.fromkeys(MODEL, 0.25))


def clipped(parts, most=0.3):
    def change(grads):
        made = {}
        for part in parts:
            size = np.sqrt(sum(float((grads[leaf] ** 2).sum()) for leaf in part))
            made |= {leaf: grads[leaf] * min(1.0, most / size) for leaf in part}
        return {leaf: made[leaf] for leaf in grads}

    return change


@pytest.mark.parametrize("who", [0, 1])
def test_the_side_that_clips_groups_is_said(who):
    parts = ("ws", "vbr")
    rules = [momentum(1, 1, change=clipped(["wvbsr"])), momentum(1, 1, change=clipped(parts))]
    said = update_cause(walk_of(*rules[:: 1 if who else -1], lambda params: {"m": still_zero(params)}))
    assert said.startswith("clipping: "), said
    assert said.endswith("there by the norms of 2 groups of leaves, such as w, s" if who else "of all)"), said
    slots = lambda params: {"m": still_zero(params), "sq": still_zero(params)}  # noqa: E731
    scaled = lambda grads: {leaf: one * (0.5 if leaf in "wb" else 1.0) for leaf, one in grads.items()}  # noqa: E731
    assert "groups of leaves" not in update_cause(walk_of(adam(), adam(change=scaled), slots))
