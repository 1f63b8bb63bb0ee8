"""Trust ratios of some leaves: their bound, and leaves that two sides call otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from parity.checks.proving.trust_forms import trust_cause, trust_form

NAMES = {
    "k": "weight",
    "m": "other.weight",
    "n": "third.weight",
    "o": "fourth.weight",
    "b": "bias",
    "c": "other.bias",
}
RATIOS = {"weight": 0.5, "other.weight": 0.3, "third.weight": 1.6, "fourth.weight": 0.2}


def _form(
    most: Mapping[int, float], names: Mapping[str, str], plain: tuple[str, ...] = ("bias", "other.bias")
) -> Any:
    """Return the moves of two updates by ratios that are bounded, those of leaves without one at the plain rate."""
    moves = {}
    for at, top in most.items():
        rates = {leaf: 0.02 * min(ratio * at, top) for leaf, ratio in RATIOS.items() if leaf not in plain}
        rates |= dict.fromkeys(plain, 0.02)
        sizes = {leaf: 1.0 / (RATIOS.get(leaf, 7.0) * at) for leaf in rates}
        moves[at] = {
            own: SimpleNamespace(rate=rates[leaf], size=sizes[leaf], size_decayed=sizes[leaf], params=1.0, decay=0.0)
            for own, leaf in names.items()
        }
    return trust_form(SimpleNamespace(moves=moves, wholes={}))  # type: ignore[arg-type]


def _said(here: Any, there: Any) -> str:
    return trust_cause(here, there, NAMES)


OWN = {leaf: leaf for leaf in NAMES.values()}


def test_a_bound_of_the_ratio_is_told_where_it_acts() -> None:
    said = _said(_form({1: 9.0, 2: 9.0}, OWN), _form({1: 1.7, 2: 1.7}, NAMES))
    assert said == (
        "trust ratio: that of the port is clipped from above, lower than where that of the trainer is, if at all: "
        "at update 2 n would move faster by it"
    )


def test_a_bound_beside_leaves_without_a_ratio_is_another_rate() -> None:
    form = _form({1: 0.45, 2: 1.7}, NAMES)
    assert form is not None
    assert form.rests[1].keys() == {"k", "n", "b", "c"}
    assert form.rests[2].keys() == {"n", "b", "c"}


def test_leaves_that_are_called_otherwise_are_the_same_leaves() -> None:
    both = _form({1: 9.0, 2: 9.0}, OWN), _form({1: 9.0, 2: 9.0}, NAMES)
    assert _said(*both) == ""


def test_a_leaf_without_a_ratio_at_any_update_is_told_as_that() -> None:
    plain = ("bias", "other.bias", "weight")
    said = _said(_form({1: 9.0, 2: 9.0}, OWN), _form({1: 9.0, 2: 9.0}, NAMES, plain))
    assert said == "trust ratio: the port has no trust ratio for k, the other has one", said
