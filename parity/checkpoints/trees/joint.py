"""Saves and restores of one tree by several processes: whole or absent, sealed once, the same tree in all of them.

What a tree holds in every process has to be the same there, or a part of an array that lies in all of them: what
differs, such as the state of a generator of each process, is refused, as one copy of it would be kept and the others
lost without a word.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import storage
from parity.checkpoints import FILE, LONE, ByteRange, SaveUnderWay, Seal, read_seal, require_leaves, require_verified
from parity.checkpoints.trees.document import to_json
from parity.checkpoints.trees.fit import RestoredTree
from parity.checkpoints.trees.form import JointWrite, TreeForm
from parity.checkpoints.trees.nodes import Branch, LeafNode, Node, leaves
from parity.checkpoints.trees.reading import Pending
from parity.checkpoints.trees.snapshot import META, TreeSnapshot
from parity.checkpoints.trees.together import SavingGroup, agree, attempt, attempt_alike, digest_held
from parity.state import TrainingState, leaf_digests, orders_of
from parity.storage import FileDigest

__all__ = ["restore_joint", "snapshot_joint", "write_joint"]

SealDraft = Callable[[Mapping[str, FileDigest], Mapping[str, tuple[ByteRange, ...]]], None]
"""Seals and commits a draft, given what `TreeForm.write` returns; called in process 0."""


def snapshot_joint(
    form: TreeForm,
    tree: Any,
    group: SavingGroup,
    given: Mapping[str, str],
    check: Callable[[], None],
    *,
    items: bool,
    spare: TreeSnapshot | None = None,
) -> tuple[TreeSnapshot, str]:
    """Return the snapshot of a tree that several processes save, when all have one of the same tree.

    Beside it is a text that is the same in all processes and that no other save has, for names. All meet once, and
    again only where they are to be told what differs: a program waits for this.

    Args:
        form: The framework's part.
        tree: As of `TreeSnapshot`.
        group: The processes, all of which call it.
        given: What else has to be the same in all: name to text.
        check: Raises where nothing may be saved; called in process 0.
        items: As of `TreeSnapshot`.
        spare: As of `TreeSnapshot`.

    Raises:
        CheckpointError: A process cannot save its tree, or has another one; names the leaves and the processes.
    """
    made: list[TreeSnapshot] = []

    def taken() -> Mapping[str, str]:
        if group.index == 0:
            check()
        made.append(TreeSnapshot(form, tree, items=items, spare=spare))
        return _said(made[0])

    token = attempt_alike(group, "save", given, taken)
    return made[0], token


def write_joint(
    form: TreeForm,
    save: SaveUnderWay[TreeSnapshot],
    meta: dict[str, Any],
    draft: Path,
    begun: JointWrite,
    group: SavingGroup,
    commit: SealDraft,
) -> None:
    """End what `TreeSnapshot.begin_together` began, and commit the checkpoint; all processes call it.

    Args:
        form: The framework's part.
        save: The save, of which each process has its own snapshot.
        meta: What the JSON file of the checkpoint holds.
        draft: The directory of the draft, the same in all, in one that they all see.
        begun: What was begun there.
        group: The processes, for this thread.
        commit: Called in process 0 when all have written.

    Raises:
        CheckpointError: It failed, in whichever process; nothing is sealed.
        SaveError: What follows the commit failed.
    """
    snapshot = save.snapshot
    begun.write(group)
    arrays = {**snapshot.texts(), **digest_held(snapshot.held, group, {})}
    scalars = leaf_digests(TrainingState(arrays={}, scalars=dict(save.scalars)))
    save.put_leaves({name: {**arrays, **scalars}[name] for name in (*snapshot.names, *scalars)})

    def finish() -> None:
        if group.index == 0:
            files, places = begun.finish(save.leaves())
            storage.write_file(draft / META, json.dumps(meta), sync=False)  # a commit does
            commit(files, places)

    attempt(group, finish, lambda error: form.reason(error, draft))


def restore_joint(
    target: Path, name: str, group: SavingGroup, open_pending: Callable[[Seal | None], Pending]
) -> RestoredTree:
    """Restore a tree in several processes, each what its template says; all call it.

    Process 0 compares every byte of the checkpoint with its seal. Each has its own view of the file system, so what
    each has read is digested too, parts of arrays together.

    Args:
        target: The checkpoint.
        name: What it was called, which has to be the same in all.
        group: The processes.
        open_pending: Returns what this process reads of it, compared with the seal where it read whole arrays; given
            the seal, or None where there is none.

    Raises:
        DamagedError: It is not what was sealed.
        CheckpointError: Some process cannot restore it; no object of a template has taken anything over then, unless
            one refused its state.
    """
    agree(group, "restore", {"the checkpoint": name})
    sealed = attempt(group, lambda: os.path.lexists(target / FILE))
    attempt(group, lambda: require_verified(target) if sealed and group.index == 0 else None)
    seal = attempt(group, lambda: read_seal(target) if sealed else None)
    described = attempt(group, lambda: (target / META).read_bytes() if os.path.lexists(target / META) else b"")
    text = "no seal" if seal is None else storage.digest_bytes(repr(seal).encode() + described).digest
    agree(group, "restore", {"the seal, and the description of the tree": text})
    pending = attempt(group, lambda: open_pending(seal))
    held = pending.held
    agree(group, "restore", {name: f"a part of {one.dtype}{list(one.shape)}" for name, one in held.items()})
    if held:
        assert seal is not None
        found = digest_held(held, group, orders_of(seal.leaves))
        attempt(group, lambda: require_leaves(seal, found, partial=True))
    values = attempt(group, pending.placed)
    step = None if seal is None or seal.spec_hash == LONE else seal.step
    metric = None if seal is None or seal.spec_hash == LONE else seal.metric
    return attempt(group, lambda: pending.take_over(values, step, metric))


def _said(snapshot: TreeSnapshot) -> dict[str, str]:
    """Return what has to be the same in all processes that save a tree, by names for messages."""
    texts, held = snapshot.texts(), snapshot.held
    containers = json.dumps(to_json(_bare(snapshot.node)))
    own = {"the containers": storage.digest_bytes(containers.encode()).digest}
    for name, leaf in leaves(snapshot.node).items():
        sealed = name or "tree"
        own[sealed] = texts.get(sealed) or (f"a part of {leaf.value}" if sealed in held else repr(leaf.value))
    return own


def _bare(node: Node) -> Node:
    """Return the containers of a tree alone."""
    if isinstance(node, Branch):
        return replace(node, children=tuple(map(_bare, node.children)))
    return LeafNode(node.name, None)
