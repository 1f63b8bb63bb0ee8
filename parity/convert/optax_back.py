"""An Optax state on its way to PyTorch: in the layout that the document of a conversion refers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.convert.optax_parts import parts_of_optax
from parity.convert.optax_tree import OptaxState, read_optax
from parity.convert.optimizer_layout import COUNT
from parity.errors import CheckpointError
from parity.formats import InMemory, leaf_name, leaves

__all__ = ["in_recorded_layout"]

_OPTAX = {"first_moment": "mu", "second_moment": "nu", "momentum": "trace"}


def in_recorded_layout(tree: Mapping[str, Any], content: Mapping[str, Any], where: str) -> OptaxState | None:
    """Return the state of an optimizer in the layout of a document; None where it is in that already.

    Args:
        tree: JAX's.
        content: The document, whose references are to leaves of our layout, or of Optax's plainest chain.
        where: The checkpoint, for messages.

    Raises:
        CheckpointError: As of `read_optax`; or the document has one count, and the state several.
    """
    state = tree.get("opt_state")
    position_at = str(content.get("position_at") or "")
    layout = content.get("layout", "parity" if position_at == COUNT else "optax")
    if not layout or state is None or (isinstance(state, dict) and {"step", "slots"} <= set(state)):
        return None
    if layout == "optax":
        there = {leaf_name(("opt_state", *keys)) for keys, _ in leaves(state)}
        heads = ("opt_state.0.mu", "opt_state.0.trace", "opt_state.0.count")
        head = any(name.startswith(heads) for name in there)
        if set(content.get("counts") or {}) <= there:
            parts = None if head else parts_of_optax(state, where)
            if parts is None or not (parts.moments or parts.hyperparameters):
                return None
    order = [leaf_name(keys) for keys in sorted(keys for keys, _ in leaves(tree["params"]))]
    kind = str((content.get("optimizer") or {}).get("kind") or "")
    found = read_optax(state, order, where, kind)
    return _plainest(found, position_at, where) if layout == "optax" else found


def _plainest(found: OptaxState, position_at: str, where: str) -> OptaxState:
    """Return a state as Optax's plainest chain has it: moments first, the count of the schedule last."""
    steps = sorted(set(found.tree["step"].load().tolist()))
    if len(steps) > 1:
        raise CheckpointError(f"{where}: transformations had {steps} updates, and the document has one count for all")
    head = {_OPTAX[slot]: own for slot, own in found.tree["slots"].items()}
    if "trace" not in head and head:
        head["count"] = InMemory(np.array(steps[0], np.int32))
    tree: dict[str, Any] = {"0": head}
    if position_at.count(".") == 2 and found.scheduled:
        tree[position_at.split(".")[1]] = {"count": found.tree["count"]}
    origin = {}
    for name, leaf in found.origin.items():
        _, _, slot, path = name.split(".", 3)
        origin[f"opt_state.0.{_OPTAX[slot]}.{path}"] = leaf
    return OptaxState(tree, origin, found.scheduled, set(), found.hyperparameters)
