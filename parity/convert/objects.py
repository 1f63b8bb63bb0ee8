"""Objects that only code could rebuild: refused by name, or left out on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from parity.convert.components import COMPONENTS, component_of_key
from parity.convert.ledger import Ledger
from parity.errors import UnknownNameError
from parity.formats import Key, Opaque, Tree, leaf_name

__all__ = ["require_resets", "without_objects"]


def without_objects(
    tree: Tree, keys: tuple[Key, ...], reset: Collection[str], ledger: Ledger, *, all_of: bool = True
) -> Tree:
    """Return a tree without objects that only code could rebuild: refused in the ledger, or left out on request.

    Args:
        tree: A tree.
        keys: Keys on the way to it.
        reset: Leaves and components that may be left out.
        ledger: Takes a line for each object.
        all_of: Whether the others are refused too; else they stay.
    """
    if isinstance(tree, dict) and not isinstance(tree, Counter):
        return {
            key: without_objects(child, (*keys, key), reset, ledger, all_of=all_of)
            for key, child in tree.items()
            if not _is_lost(child, (*keys, key), reset, ledger, all_of)
        }
    if isinstance(tree, list | tuple):
        made = [
            None
            if _is_lost(child, (*keys, at), reset, ledger, all_of)
            else without_objects(child, (*keys, at), reset, ledger, all_of=all_of)
            for at, child in enumerate(tree)
        ]
        return made if isinstance(tree, list) else tuple(made)
    return tree


def _is_lost(value: Tree, keys: tuple[Key, ...], reset: Collection[str], ledger: Ledger, all_of: bool) -> bool:
    if not isinstance(value, Opaque):
        return False
    name, why = leaf_name(keys), f"an object of {value.name}, which only its code could rebuild"
    if name in reset or component_of_key(str(keys[0])) in reset:
        ledger.add(name, "reset", how=f"left out on request: {why}")
    elif not all_of:
        return False
    else:
        ledger.add(name, "refused", how=f"{why}; --reset {name} leaves it out")
    return True


def require_resets(reset: Collection[str], trees: Collection[Tree], ledger: Ledger) -> None:
    """Check that what may be reset is something: a component, a key of the source or of the target, or a leaf.

    Args:
        reset: What was asked for.
        trees: The source and the target.
        ledger: Its lines name the leaves.

    Raises:
        UnknownNameError: A name is of nothing, such as one that is misspelt.
    """
    keys = [str(key) for tree in trees if isinstance(tree, dict) for key in tree]
    known = dict.fromkeys([*(name for name in COMPONENTS if name != "other"), *keys])
    own = {entry.leaf for entry in ledger.entries}
    left = {entry.leaf for entry in ledger.entries if entry.action in ("reset", "refused")}
    for name in reset:
        if name not in known and name not in own:
            raise UnknownNameError("name of --reset", name, known)
        if name in own - left:
            ledger.notes.append(f"--reset {name} changed nothing: it has its place, and is converted")
