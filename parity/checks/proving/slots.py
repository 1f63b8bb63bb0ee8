"""LeafSlots of a training state: arrays that each belong to a leaf of the model, such as moments and averages.

A state of PyTorch says through its optimizer which parameter a moment belongs to. Any other state is told by places
and shapes: arrays whose places end as the leaves of the model are called, or a list of arrays in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.contract import ModelProbe, StateView

__all__ = ["LeafArrays", "choose_model", "names_of", "slots_of"]

LeafArrays = Mapping[str, NDArray[np.float64]]

NEAR = 0.02
"""How far, of its largest element, what stands for the model at the start may be from what it was given: rounding to
bfloat16 is 0.004 of an element."""

NUDGED_ZERO = 2.0**-50
"""How far leaves of zeros may be: runs that measure noise begin one unit in the last place of 0.5 away."""


def slots_of(view: StateView, model: ModelProbe) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return slot to leaf to array.

    Args:
        view: The state.
        model: Whose leaves they belong to.
    """
    slots: dict[str, dict[str, NDArray[np.float64]]] = {}
    for place, (slot, owner) in view.owned.items():
        slots.setdefault(slot, {})[owner] = np.asarray(view.arrays[place], np.float64)
    free = {place: array for place, array in view.arrays.items() if place not in view.owned}
    loose: list[str] = []
    named: dict[str, dict[str, NDArray[np.float64]]] = {}
    for place, array in free.items():
        leaf = _leaf_of(place, array.shape, model)
        if leaf is None or array.dtype.kind != "f":
            loose.append(place)
        else:
            named.setdefault(place[: -len(leaf)].rstrip("."), {})[leaf] = array
    parts, loose = _of_a_part(loose, view, model)
    named |= {slot: held for slot, held in parts.items() if slot not in named}
    for slot, held in _with_statistics(_joined(named), model.statistics).items():
        slots[slot or "state"] = {**slots.get(slot or "state", {}), **held}
    return {**slots, **_by_order(loose, view, model)}


def _leaf_of(place: str, shape: tuple[int, ...], model: ModelProbe) -> str | None:
    """Return the leaf by whose name a place ends, the longest."""
    keys = place.split(".")
    for at in range(len(keys)):
        name = ".".join(keys[at:])
        if name in model.leaves and model.leaves[name].shape == shape:
            return name
    return None


def _of_a_part(loose: Sequence[str], view: StateView, model: ModelProbe
               ) -> tuple[dict[str, dict[str, NDArray[np.float64]]], list[str]]:  # fmt: skip
    """Return slots whose names are those of one part of the model, as of an optimizer of one of two networks.

    A slot has all leaves of the part, in their shapes, and of one part alone: of two built alike none counts.

    Returns:
        Slot to leaf to array, and the places that are left.
    """
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for leaf, value in model.leaves.items():
        if leaf in model.statistics:
            continue
        keys = leaf.split(".")
        for at in range(1, len(keys)):
            parts.setdefault(".".join(keys[:at]), {})[".".join(keys[at:])] = value.shape
    shapes = {place: np.shape(view.arrays[place]) for place in loose if view.arrays[place].dtype.kind == "f"}
    homes: dict[str, set[str]] = {}
    for part, inner in parts.items():
        name, shape = next(iter(inner.items()))
        for place in (one for one, other in shapes.items() if one.endswith(f".{name}") and other == shape):
            home = place.removesuffix(f".{name}")
            if all(shapes.get(f"{home}.{other}") == size for other, size in inner.items()):
                homes.setdefault(home, set()).add(part)
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for home, fitting in homes.items():
        if len(fitting) == 1:
            part = fitting.pop()
            found[home] = {
                f"{part}.{name}": np.asarray(view.arrays[f"{home}.{name}"], np.float64) for name in parts[part]
            }
    taken = {f"{home}.{name}" for home, held in found.items() for part in parts for name in parts[part]
             if f"{part}.{name}" in held}  # fmt: skip
    return found, [place for place in loose if place not in taken]


def _joined(named: dict[str, dict[str, NDArray[np.float64]]]) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return slots with those put together that lie apart, as an optimizer of each group of parameters keeps them."""
    made: dict[str, dict[str, NDArray[np.float64]]] = {}
    for slot, held in named.items():
        alike = (o for o, other in made.items() if _one_kind(o, slot, named) and not held.keys() & other.keys())
        home = next(alike, None)
        made.setdefault(slot if home is None else home, {}).update(held)
    return made


def _with_statistics(
    named: Mapping[str, Mapping[str, NDArray[np.float64]]], statistics: frozenset[str]
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return slots with parameters and running statistics put together that lie side by side, as collections do.

    An average of both is one slot in PyTorch. Where two could be meant, none is.
    """
    beside: dict[tuple[str, bool], list[str]] = {}
    for slot, held in named.items():
        home, kinds = slot.rpartition(".")[0], {leaf in statistics for leaf in held}
        if home and len(kinds) == 1:
            beside.setdefault((home, kinds.pop()), []).append(slot)
    made = {slot: dict(held) for slot, held in named.items()}
    for (home, moving), slots in beside.items():
        others = beside.get((home, not moving), [])
        if moving and len(slots) == len(others) == 1 and home not in made:
            made[home] = made.pop(others[0]) | made.pop(slots[0])
    return made


def _one_kind(a: str, b: str, named: Mapping[str, Mapping[str, object]]) -> bool:
    """Return whether two slots are called alike but for the group: `opt.a.0.mu.params` and `opt.b.1.0.mu.params`."""
    one, two = ([word for word in slot.split(".") if not word.isdigit()] for slot in (a, b))
    if one[-1:] != two[-1:]:
        return False
    if len(one) == len(two):
        return sum(x != y for x, y in zip(one, two, strict=True)) <= 1
    # the last word says nothing where slots of the same leaves end in it, as in the name of a collection
    ending = [set(held) for slot, held in named.items() if slot.split(".")[-1] == one[-1]]
    return not any(x & y for at, x in enumerate(ending) for y in ending[:at])


def _by_order(loose: Sequence[str], view: StateView, model: ModelProbe) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return lists of arrays that have the shapes of the parameters, in their order."""
    params = [leaf for leaf in model.leaves if leaf not in model.statistics]
    lists: dict[str, list[str]] = {}
    for place in loose:
        home, _, last = place.rpartition(".")
        if last.isdigit():
            lists.setdefault(home, []).append(place)
    found = {}
    for home, places in lists.items():
        if [view.arrays[p].shape for p in places] == [model.leaves[leaf].shape for leaf in params]:
            found[home] = {
                leaf: np.asarray(view.arrays[p], np.float64) for leaf, p in zip(params, places, strict=True)
            }
    return found


def choose_model(
    given: LeafArrays, views: Sequence[Mapping[str, LeafArrays]], leaves: Sequence[str], known: str | None
) -> str | None:
    """Return the slot that is the model itself, where several held its values at the start, as an average does.

    Args:
        given: The values that the training was begun from.
        views: LeafSlots at the start, and after each of some updates.
        leaves: Those that the slot must have.
        known: The slot that is the object that was given; it is taken.

    Returns:
        Of the slots that begin at these values the one that moves most: an average lags behind, a copy stays.
    """
    if known is not None and all(leaf in views[0].get(known, {}) for leaf in leaves):
        return known
    fits = []
    for slot, held in views[0].items():
        if all(leaf in held and _near(held[leaf], given[leaf]) for leaf in leaves):
            moved = sum(float(np.abs(held[leaf] - views[-1].get(slot, held)[leaf]).sum()) for leaf in leaves)
            fits.append((moved, slot))
    return max(fits, key=lambda one: one[0])[1] if fits else None


def _near(array: NDArray[np.float64], given: NDArray[np.float64]) -> bool:
    if array.shape != given.shape:
        return False
    limit = max(NEAR * float(np.abs(given).max(initial=0.0)), NUDGED_ZERO)
    return float(np.abs(array - given).max(initial=0.0)) <= limit


def names_of(leaves: Sequence[str]) -> str:
    """Return some leaves as a phrase."""
    return ", ".join(leaves[:3]) + (f" and {len(leaves) - 3} more" if len(leaves) > 3 else "")
