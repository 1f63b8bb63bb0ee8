"""Leaves that one side alone has: left out on request, or taken from a checkpoint like it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from parity.convert.components import component_of_key
from parity.convert.ledger import Ledger
from parity.formats import Key, Tree, leaf_name, leaves

__all__ = ["note_unplaced", "with_lacking"]


def note_unplaced(held: Mapping[str, Any], placed: Collection[str], reset: Collection[str], ledger: Ledger) -> None:
    """Write a line for each leaf that has no place in PyTorch's state.

    Args:
        held: All leaves of the state, by their dotted names; what is empty needs no place.
        placed: Names of those that have a place.
        reset: Leaves, keys at the top and components that may be left out; of `params`, a leaf by its own name alone,
            as the others have their places.
        ledger: Takes the lines.
    """
    for name, leaf in held.items():
        if name in placed or leaf is None or (isinstance(leaf, dict | list | tuple) and not leaf):
            continue
        top = name.partition(".")[0]
        asked = name in reset or (top != "params" and not {top, component_of_key(top)}.isdisjoint(reset))
        given = name if top in ("params", "opt_state") else top
        refusal = f"PyTorch's state has no place for it; --reset {given} leaves it out"
        ledger.add(name, "reset" if asked else "refused", how="left out on request" if asked else refusal)


def with_lacking(tree: Mapping[str, Any], like: Tree, reset: Collection[str], ledger: Ledger) -> dict[str, Any]:
    """Return a JAX state with the leaves that it lacks and a reset names, as a PyTorch checkpoint has them.

    Such is `num_batches_tracked` of BatchNorm, which no library of JAX keeps. The moments of an optimizer are its own
    matter: what has none is refused, whatever is asked for.

    Args:
        tree: The state; it stays as it is.
        like: The PyTorch checkpoint, as JAX has it.
        reset: Names of leaves, among others.
        ledger: Takes a line for each leaf.
    """
    own, made = {leaf_name(keys) for keys, _ in leaves(tree)}, dict(tree)
    for keys, leaf in leaves(like):
        name = leaf_name(keys)
        if name in reset and name not in own and keys[0] not in ("opt_state", "step"):
            _put(made, keys, leaf)
            ledger.add(name, "reset", how="on request as --like has it: JAX's state has none")
    return made


def _put(tree: dict[Any, Any], keys: tuple[Key, ...], leaf: Tree) -> None:
    """Put a leaf into a copy of each dict on the way."""
    for key in keys[:-1]:
        inner = tree.get(key)
        tree[key] = dict(inner) if isinstance(inner, dict) else {}
        tree = tree[key]
    tree[keys[-1]] = leaf
