"""The state of parameters that PyTorch's optimizer had none of yet: an update in JAX began it.

PyTorch makes the state of a parameter at its first update, so a checkpoint from before has no entry for it. JAX has
its moments from the start. Which entries an update in JAX has begun, its counts say, and where the class counts
nothing, the moments themselves: momentum of zeros takes the steps of none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.convert.branches import node_at
from parity.convert.ledger import Ledger
from parity.convert.optimizer_layout import SCALAR, STEPS
from parity.convert.torch_state import STORED
from parity.errors import CheckpointError
from parity.formats import Array, Key, Tree
from parity.mapping import RulePlacement
from parity.state import OptimizerKind, Slot, slot_shape

__all__ = ["Begun"]

DEFAULT_COUNT = "float32"
"""Type of a count of PyTorch, of which neither side says anything."""


@dataclass(frozen=True)
class Begun:
    """What is known of a state in JAX whose entries are looked for."""

    recorded: Mapping[str, Any]
    """The optimizer in the document: `at`, `groups` and `kind`."""
    places: Mapping[str, int]
    """Path of each parameter that PyTorch had no entry for, to its place in the counts."""
    counts: np.ndarray
    """Updates of all parameters."""
    counted: bool
    """Whether the counts are those of updates; else a parameter that has a slot counts as updated."""
    placements: Mapping[str, RulePlacement]
    model: Mapping[str, Mapping[str, Any]]
    """Name in PyTorch to the reference of the parameter, with its shape and its type."""
    leaves: Mapping[str, Any]
    """Leaves of the tree of JAX by name, its optimizer in the layout of `jax_side.optim`."""

    def begin(self, tree: Tree, resolve: Callable[[dict[str, Any]], Any], ledger: Ledger, where: str) -> list[str]:
        """Put the entries that JAX began into the optimizer of a tree of PyTorch, and return the paths of others.

        Args:
            tree: PyTorch's; changed in place.
            resolve: Returns what a reference of a document is about, and writes its line.
            ledger: Takes a note.
            where: The checkpoint, for messages.

        Raises:
            CheckpointError: Parts of one parameter were updated differently often.
        """
        if not self.recorded.get("kind"):  # a document from before, which does not say what an entry has
            return [path for path, place in self.places.items() if not self.counts[place]]
        node, kind = node_at(tree, self.recorded["at"]), STORED[self.recorded["kind"]]
        state, begun = node["state"], 0
        count_type = _count_type(state, self.counts)
        spell: Callable[[Key], Key] = str if state and all(isinstance(key, str) for key in state) else _as_it_is
        still: list[str] = []
        for group, names in zip(node["param_groups"], self.recorded["groups"], strict=True):
            for key, name in zip(group["params"], names, strict=True):
                paths = self.placements[name].target
                if not set(paths) <= set(self.places):
                    continue
                if not self._count(paths, where):
                    still.extend(paths)
                    continue
                known = key if key in state else spell(key)
                entry = dict(state.get(known) or {})
                if made := self._entry(kind, group, name, entry, count_type, resolve):
                    state[known] = {**entry, **made}
                    begun += 1
                else:
                    still.extend(paths)
        if begun:
            ledger.notes.append(
                f"PyTorch's optimizer had no state yet of {begun} parameter{'s' if begun > 1 else ''}, as before a "
                "first update: it is made from what JAX began"
            )
        return still

    def _count(self, paths: Sequence[str], where: str) -> int:
        found = {int(self.counts[self.places[path]]) for path in paths}
        if len(found) > 1:
            raise CheckpointError(f"{where}: {STEPS} of {' and '.join(paths)} differ, and they are one in PyTorch")
        return found.pop()

    def _entry(
        self,
        kind: OptimizerKind,
        group: Mapping[str, Any],
        name: str,
        entry: Mapping[str, Any],
        count_type: str,
        resolve: Callable[[dict[str, Any]], Any],
    ) -> dict[str, Any]:
        """Return the keys that the entry of a parameter lacks; empty where nothing has begun."""
        shape, dtype = tuple(self.model[name]["shape"]), self.model[name]["dtype"]
        arguments = {**kind.arguments, **group}
        slots = [one for one in kind.slots if entry.get(one.key) is None and one.is_kept(arguments, len(shape))]
        if not self.counted and not any(self._has_values(slot, name) for slot in slots):
            return {}
        made = {slot.key: resolve(self._reference(slot, name, shape, dtype, count_type)) for slot in slots}
        if kind.counts and entry.get("step") is None:
            place = self.places[self.placements[name].target[0]]
            made = {"step": resolve({"count": STEPS, "index": place, "dtype": count_type}), **made}
        return made

    def _has_values(self, slot: Slot, name: str) -> bool:
        """Return whether a slot of a parameter is anything but zeros in JAX."""
        found = (self.leaves.get(f"opt_state.slots.{slot.name}.{path}") for path in self.placements[name].target)
        return any(isinstance(one, Array) and any(np.any(block) for block in one.blocks()) for one in found)

    def _reference(
        self, slot: Slot, name: str, shape: tuple[int, ...], dtype: str, count_type: str
    ) -> dict[str, Any]:
        own = slot_shape(slot, shape)
        of_count = "float32" if count_type == "int" else count_type
        reference = {"from": f"opt_state.slots.{slot.name}", "name": name, "shape": list(own)}
        if slot.form == "scalar":
            return {**reference, "dtype": of_count, SCALAR: True}
        return {**reference, "dtype": dtype}


def _as_it_is(key: Key) -> Key:
    return key


def _count_type(state: Mapping[Key, Any], counts: np.ndarray) -> str:
    """Return the type of PyTorch's counts: that of another entry, or of JAX's, where those are PyTorch's kind."""
    for entry in state.values():
        count = entry.get("step") if isinstance(entry, dict) else None
        if isinstance(count, Array):
            return str(count.dtype.name)
        if type(count) is int:
            return "int"
    return str(counts.dtype.name) if np.issubdtype(counts.dtype, np.floating) else DEFAULT_COUNT
