"""Slots of a state are found by names and shapes: of groups, of parts of a model, of a start that was nudged."""

from types import SimpleNamespace

import numpy as np

from parity.checks.noise import one_ulp_away
from parity.checks.proving.slots import choose_model, slots_of
from parity.contract import StateView

LEAVES = {"g.w": np.ones((2, 3)), "g.b": np.zeros(3), "d.w": np.ones((4, 3)), "d.b": np.zeros(3)}
MODEL = SimpleNamespace(leaves=LEAVES, statistics=frozenset())


def slots(arrays, leaves=LEAVES):
    return slots_of(StateView(arrays), SimpleNamespace(leaves=leaves, statistics=frozenset()))


def test_moments_of_groups_are_one_slot_also_where_all_end_in_the_name_of_a_collection():
    arrays = {f"variables.params.{leaf}": one for leaf, one in LEAVES.items()}
    for group, number, name in (("a", "1.0", "g"), ("b", "0", "d")):
        for word in ("mu", "nu"):
            for leaf in ("w", "b"):
                arrays[f"opt.{group}.inner.{number}.{word}.params.{name}.{leaf}"] = LEAVES[f"{name}.{leaf}"]
    found = slots(arrays)
    assert {slot: sorted(held) for slot, held in found.items()} == {
        "variables.params": sorted(LEAVES),
        "opt.a.inner.1.0.mu.params": sorted(LEAVES),
        "opt.a.inner.1.0.nu.params": sorted(LEAVES),
    }


def test_an_optimizer_of_a_part_of_the_model_has_the_names_of_the_part():
    arrays = {f"og.mu.{leaf}": LEAVES[f"g.{leaf}"] for leaf in ("w", "b")}
    assert slots(arrays) == {"og.mu": {"g.w": arrays["og.mu.w"], "g.b": arrays["og.mu.b"]}}


def test_of_two_parts_that_are_built_alike_none_is_taken():
    alike = {leaf: np.ones(LEAVES["g." + leaf[2:]].shape) for leaf in LEAVES}
    assert slots({f"og.mu.{leaf}": np.ones(LEAVES[f"g.{leaf}"].shape) for leaf in ("w", "b")}, alike) == {}


def test_a_nudged_start_with_leaves_of_zeros_is_the_start():
    moved = {leaf: one_ulp_away(one, np.ones(one.shape, bool), "float64") for leaf, one in LEAVES.items()}
    views = [{"params": moved}, {"params": {leaf: one - 0.1 for leaf, one in moved.items()}}]
    assert choose_model(LEAVES, views, list(LEAVES), None) == "params"
    other = [{"params": {**moved, "g.b": moved["g.b"] + 1e-9}}, views[1]]
    assert choose_model(LEAVES, other, list(LEAVES), None) is None


def test_an_average_in_two_collections_is_one_slot():
    statistics = frozenset({"d.b"})
    model = SimpleNamespace(leaves=LEAVES, statistics=statistics)

    def places(*homes):
        return {f"{home}.{leaf}": one for home, wanted in homes for leaf, one in LEAVES.items() if wanted(leaf)}

    params, moving = (lambda leaf: leaf not in statistics), (lambda leaf: leaf in statistics)
    found = slots_of(StateView(places(("ema.params", params), ("ema.batch_stats", moving))), model)
    assert {slot: sorted(held) for slot, held in found.items()} == {"ema": sorted(LEAVES)}
    two = slots_of(StateView(places(("ema.params", params), ("ema.fast", params), ("ema.stats", moving))), model)
    assert sorted(two) == ["ema.fast", "ema.params", "ema.stats"], "which of them the statistics are of is not said"
