"""A copy of a tree on the host, which is written while the program changes the tree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import storage
from parity.checkpoints import DESCRIPTION, Neutral
from parity.checkpoints.trees.document import is_scalar, to_json
from parity.checkpoints.trees.form import JointWrite, TreeForm, Written, parts_of, sealed_name
from parity.checkpoints.trees.nodes import ArrayType, Branch, LeafNode, Node, leaves, walk
from parity.checkpoints.trees.together import HeldArray
from parity.errors import CheckpointError
from parity.state import TrainingState, leaf_digests, memory_orders

__all__ = ["META", "TREE", "TreeSnapshot", "described"]

META = "meta.json"
"""The file of a checkpoint that describes its tree."""

TREE = DESCRIPTION
ITEMS = "@items"
"""The scalars of a checkpoint that hold the description of its tree, and whether its first keys are items."""


class TreeSnapshot:
    """A copy of a tree: the description of its containers, the copied arrays, and its scalars.

    Args:
        form: The framework's part.
        tree: What is copied.
        items: Whether the first keys are items, which get files of their own.
        spare: The snapshot of the save before, whose buffers are taken over.

    Raises:
        CheckpointError: Something in the tree cannot be saved; names each such leaf.
    """

    def __init__(self, form: TreeForm, tree: Any, *, items: bool, spare: TreeSnapshot | None = None) -> None:
        self._form, self._items = form, items
        node = walk(tree, form.open_saved)
        live = {name: leaf.value for name, leaf in leaves(node).items()}
        if taken := {TREE, ITEMS} & live.keys():
            raise CheckpointError(f"the name {min(taken)!r} is that of the description of a tree; rename the key")
        self.node = described(node, form, "cannot be saved")
        if abstract := [(sealed_name(n), "has a type, and no value") for n in live if not form.has_value(live[n])]:
            raise CheckpointError("cannot be saved:", abstract)
        types = {name: leaf.value for name, leaf in leaves(self.node).items()}
        arrays = {name: live[name] for name, kind in types.items() if isinstance(kind, ArrayType)}
        self._copied = form.copy(arrays, spare.values if spare else {})
        self.values: dict[str, Any] = {**types, **self._copied}
        self._texts: dict[str, str] | None = None

    @property
    def size(self) -> int:
        """Return the bytes of its arrays."""
        whole = sum(array.nbytes for array in self.neutral()[0].values())
        return whole + sum(part.nbytes for part in self.held.values())

    @property
    def names(self) -> list[str]:
        """Return the names of the arrays in the seal, in their order there."""
        return [sealed_name(name) for name in self._copied]

    @property
    def held(self) -> dict[str, HeldArray]:
        """Return what is here of arrays that lie in several processes, under their names in the seal."""
        return {sealed_name(name): v for name, v in self._copied.items() if isinstance(v, HeldArray)}

    def neutral(self) -> Neutral:
        """Return the arrays under their names in the seal; no scalars, which stand in the description.

        Those of which this process holds a part are not among them.
        """
        whole = {name: value for name, value in self._copied.items() if not isinstance(value, HeldArray)}
        return {sealed_name(name): self._form.neutral(value) for name, value in whole.items()}, {}

    def texts(self) -> dict[str, str]:
        """Return the digests of those arrays that are here whole, made once, under their names in the seal."""
        if self._texts is None:
            neutral = TrainingState(arrays=self.neutral()[0])
            self._texts = leaf_digests(neutral, memory_orders(neutral))
        return self._texts

    def scalars(self) -> dict[str, Any]:
        """Return what describes the tree, in JSON."""
        return {TREE: to_json(self.node), ITEMS: self._items}

    def write(self, draft: Path, meta: dict[str, Any], texts: dict[str, str]) -> Written:
        """Write all files of a checkpoint but its seal into a new directory.

        Args:
            draft: The directory.
            meta: What its JSON file holds.
            texts: Name of each leaf in the seal to its digest.
        """
        made = self._form.write(draft, parts_of(self.node, items=self._items), self.values, texts)
        storage.write_file(draft / META, json.dumps(meta))
        return made

    def begin_together(self, draft: Path) -> JointWrite:
        """Begin to write the files of all parts with the other processes: all but the JSON file, and the seal.

        Args:
            draft: As of `write`, in a directory that all processes see.
        """
        return self._form.begin_together(draft, parts_of(self.node, items=self._items), self.values)


def described(node: Node, form: TreeForm, problem: str) -> Node:
    """Return a tree of the types of its arrays and of its scalars.

    Args:
        node: The tree.
        form: The framework's part, which describes an array.
        problem: What cannot be done, at the beginning of the message.

    Raises:
        CheckpointError: A leaf is neither; names each.
    """
    found: list[tuple[str, str]] = []

    def each(one: Node) -> Node:
        if isinstance(one, LeafNode):
            try:
                return LeafNode(one.name, one.value if is_scalar(one.value) else form.describe(one.value))
            except TypeError as error:
                found.append((sealed_name(one.name), str(error)))
        if isinstance(one, Branch):
            return replace(one, children=tuple(map(each, one.children)))
        return one

    made = each(node)
    if found:
        raise CheckpointError(f"{problem}: {len(found)} leaves are neither arrays nor scalars:", found)
    return made
