"""The part of saving and restoring trees that is a framework's: its containers, its arrays and its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from parity import storage
from parity.checkpoints import ByteRange
from parity.checkpoints.trees.document import from_json, holds_json, to_json
from parity.checkpoints.trees.nodes import ArrayType, Branch, Node, Opened, Whole, leaves, rebuild
from parity.checkpoints.trees.together import SavingGroup
from parity.storage import FileDigest

__all__ = ["JointWrite", "SavedPart", "TreeForm", "Written", "parts_of", "sealed_name"]

Written = tuple[dict[str, FileDigest], dict[str, tuple[ByteRange, ...]]]
"""Digests of those files that were digested while they were written, and name of a leaf to where its bytes lie."""


@dataclass(frozen=True)
class SavedPart:
    """A tree that has files of its own: an item of a checkpoint, or all of one that was saved by itself."""

    item: str
    """Name of the item; empty for a tree by itself."""
    node: Node
    """Its containers, whose leaves are scalars and types of arrays."""

    def content(self, values: Mapping[str, Any]) -> Any:
        """Return the part with other leaves, in plain dicts, lists and tuples."""
        return rebuild(from_json(to_json(self.node), self.item), values)

    def arrays(self) -> dict[str, ArrayType]:
        """Return the name of each array of the part to its type."""
        held = leaves(self.node).items()
        return {name: leaf.value for name, leaf in held if isinstance(leaf.value, ArrayType)}

    @property
    def is_json(self) -> bool:
        """Return whether the part is an item that JSON holds exactly."""
        return self.item != "" and holds_json(self.node)


def parts_of(node: Node, *, items: bool) -> list[SavedPart]:
    """Return the parts of a saved tree.

    Args:
        node: The tree, whose leaves are scalars and types of arrays.
        items: Whether its first keys are items, each a part of its own; otherwise the tree is the only part. A tree
            with items is a container.
    """
    if not items:
        return [SavedPart("", node)]
    assert isinstance(node, Branch)
    return [SavedPart(str(key), child) for key, child in zip(node.keys, node.children, strict=True)]


def sealed_name(name: str) -> str:
    """Return the name of a leaf in a seal; a tree that is one leaf is called `tree`."""
    return name or "tree"


class JointWrite(Protocol):
    """What several processes have begun to write together, and end in whichever thread."""

    def write(self, group: SavingGroup, /) -> None:
        """Return when all processes have written what they hold; all call it.

        Args:
            group: The processes, for this thread.

        Raises:
            CheckpointError: Some process failed; none writes any more.
        """

    def finish(self, texts: Mapping[str, str], /) -> Written:
        """Finish the files, which process 0 alone does; returns what `TreeForm.write` does.

        Args:
            texts: Name of each array in the seal to its digest.
        """


class TreeForm(ABC):
    """What one framework saves and restores, and in which files."""

    side: ClassVar[str]
    """Name of the side, for seals."""

    @abstractmethod
    def open_saved(self, name: str, value: Any) -> Opened | None:
        """Take a container that is saved apart by one level; None for a leaf.

        Args:
            name: Its name in the tree.
            value: A container or a leaf.
        """

    def open_template(self, name: str, value: Any) -> Opened | Whole | None:
        """Take a container of a template apart by one level; None for a leaf.

        A form whose templates differ from what is saved overrides this.

        Args:
            name: Its name in the tree.
            value: A container, an object that takes a saved subtree as it is, or a leaf.
        """
        return self.open_saved(name, value)

    @abstractmethod
    def describe(self, value: Any) -> ArrayType:
        """Return the type of a leaf that is no scalar.

        Raises:
            TypeError: It is no array either; the message says what it is.
        """

    @abstractmethod
    def has_value(self, value: Any) -> bool:
        """Return whether a leaf of a template has a value, and not only a type."""

    def group(self, tree: Any) -> SavingGroup | None:
        """Return the processes that save a tree or restore a template together; None where this one does it alone.

        Args:
            tree: The tree or the template.

        Raises:
            CheckpointError: They cannot.
        """
        del tree
        return None

    def is_split(self, like: Any) -> bool:
        """Return whether a leaf of a template lies in several processes, so that each reads what it holds."""
        del like
        return False

    @abstractmethod
    def copy(self, values: Mapping[str, Any], spare: Mapping[str, Any]) -> dict[str, Any]:
        """Copy arrays to the host, into those of a save before where they have the same type.

        What lies in several processes becomes a `HeldArray` of what is here.

        Args:
            values: Name to live array, in the order of the tree.
            spare: Name to what a call before returned, which is not needed any more.
        """

    @abstractmethod
    def neutral(self, copied: Any) -> NDArray[np.generic]:
        """Return a copied or a read array for its digest, as a view."""

    @abstractmethod
    def write(
        self, draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any], texts: Mapping[str, str]
    ) -> Written:
        """Make the directory of a draft and write everything but the description of the tree and the seal.

        Args:
            draft: The directory, which does not exist.
            parts: What is written.
            values: Name of each leaf to its copy or its scalar.
            texts: Name of each array in the seal to its digest.
        """

    @abstractmethod
    def begin_together(self, draft: Path, parts: Iterable[SavedPart], values: Mapping[str, Any]) -> JointWrite:
        """Begin what `write` does, with other processes: each writes what it holds. They are not asked.

        Called in the thread that computes; what is to be copied of live arrays is copied when it returns. What fails
        is raised when the processes meet, by what is returned.

        Args:
            draft: As of `write`, in a directory that all processes see.
            parts: As of `write`.
            values: As of `write`; a `HeldArray` for what lies in several processes.
        """

    @abstractmethod
    def read(
        self, path: Path, parts: Iterable[SavedPart], names: set[str], likes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Read arrays of a checkpoint whose bytes were verified; the others are not read where that is possible.

        Args:
            path: The checkpoint.
            parts: What it holds.
            names: The arrays that are needed.
            likes: Those of them of which this process needs a part, to the leaf of the template that says which.

        Returns:
            Name to array; a `HeldArray` where it is a part.

        Raises:
            CheckpointError: It does not hold what its description says.
        """

    @abstractmethod
    def adopt(self, array: NDArray[np.generic]) -> Any:
        """Take over an array that was read without the framework, as what `read` returns.

        Args:
            array: In C order, of one of `DTYPES`; nothing else refers to it.

        Raises:
            CheckpointError: The framework has no such type.
        """

    @abstractmethod
    def place(self, value: Any, to: ArrayType, permute: tuple[int, ...], like: Any) -> Any:
        """Return an array as the template has it: transposed, converted, and where the template's lies.

        Args:
            value: What was read: an array, or the scalar that was saved.
            to: The type that it gets.
            permute: The order of its axes in the template; empty where they stay.
            like: The leaf of the template.

        Raises:
            TypeError: That cannot be done here; the message says why.
        """

    @abstractmethod
    def raw(self, value: Any, kind: ArrayType) -> Any:
        """Return an array for a restore without a template.

        Args:
            value: What `read` returned for it.
            kind: Its type, as it was saved.
        """

    def reason(self, error: BaseException, target: Path) -> str:
        """Return in one line why a save failed: operation, file and the system's reason.

        Args:
            error: What was raised.
            target: The final place of the checkpoint.
        """
        del target
        return storage.reason(error)
