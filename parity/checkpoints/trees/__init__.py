"""Any tree as a sealed checkpoint: named leaves, a description of the containers, and a restore by template.

Knows no framework: what a container, an array and a file of one is, a side says with a `TreeForm`.
"""

from parity.checkpoints.trees.checkpoints import TREES
from parity.checkpoints.trees.document import DTYPES, is_scalar
from parity.checkpoints.trees.fit import Reference, RestoredTree, RestoreRequest, Take
from parity.checkpoints.trees.form import SavedPart, TreeForm, Written, sealed_name
from parity.checkpoints.trees.manager import KEEP, CheckpointManager, is_managed
from parity.checkpoints.trees.nodes import (
    ArrayType,
    Branch,
    LeafNode,
    Node,
    Opened,
    Scalar,
    Whole,
    leaves,
    open_plain,
    rebuild,
    type_name,
    walk,
)
from parity.checkpoints.trees.rules import Rule, RuleLike
from parity.checkpoints.trees.single import restore_tree, save_tree
from parity.checkpoints.trees.stored import BEST
from parity.checkpoints.trees.together import HeldArray, HeldPiece, SavingGroup, attempt, attempt_told

__all__ = [
    "BEST",
    "DTYPES",
    "KEEP",
    "TREES",
    "ArrayType",
    "Branch",
    "CheckpointManager",
    "HeldArray",
    "HeldPiece",
    "LeafNode",
    "Node",
    "Opened",
    "Reference",
    "RestoreRequest",
    "RestoredTree",
    "Rule",
    "RuleLike",
    "SavedPart",
    "SavingGroup",
    "Scalar",
    "Take",
    "TreeForm",
    "Whole",
    "Written",
    "attempt",
    "attempt_told",
    "is_managed",
    "is_scalar",
    "leaves",
    "open_plain",
    "rebuild",
    "restore_tree",
    "save_tree",
    "sealed_name",
    "type_name",
    "walk",
]
