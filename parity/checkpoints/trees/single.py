"""One tree in a directory of its own: sealed, and whole or absent after any crash, like a checkpoint of a run."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from parity import storage
from parity.checkpoints import (
    DRAFT,
    FILE,
    LONE,
    ByteRange,
    SaveUnderWay,
    Seal,
    commit,
    require_sealed,
    require_verified,
    while_it_stays,
)
from parity.checkpoints.remote import on_disk
from parity.checkpoints.trees.checkpoints import TREES
from parity.checkpoints.trees.fit import RestoredTree, RestoreRequest
from parity.checkpoints.trees.foreign import open_foreign, read_foreign, seal_of_file
from parity.checkpoints.trees.form import TreeForm
from parity.checkpoints.trees.joint import restore_joint, snapshot_joint, write_joint
from parity.checkpoints.trees.reading import Pending, is_described, read_tree
from parity.checkpoints.trees.snapshot import TreeSnapshot
from parity.checkpoints.trees.stored import StoredTrees
from parity.checkpoints.trees.together import TOGETHER_AT_A_STORE, SavingGroup, attempt
from parity.errors import CheckpointError, LockedError, SaveError
from parity.state import SCHEMA, TrainingState
from parity.storage import FileDigest, WriterLock, local_path
from parity.storage.stores import StoreUrl, is_url, parse_url

__all__ = ["restore_from", "restore_tree", "save_tree"]


def save_tree(form: TreeForm, path: str | os.PathLike[str], tree: Any) -> None:
    """Save a tree to a new directory: sealed, and after a crash whole or absent; `save` of a side calls it.

    Args:
        form: What the framework saves, and in which files.
        path: A local directory that does not exist, or the URL of a place at a store where nothing is.
        tree: Arrays and scalars in the containers that the form knows.

    Raises:
        CheckpointError: The directory exists, a leaf cannot be saved (each is named), another saves to it, or a write
            failed.
        RunDirectoryError: The path is a URL of another kind, or something else is at the place; or the store does not
            keep what checkpoints need.
        StoreError: The store refused or was not reached; nothing is saved.
    """
    if is_url(path):
        if form.group(tree) is not None:
            raise CheckpointError(f"{path}: {TOGETHER_AT_A_STORE}")
        _save_to_store(form, parse_url(os.fspath(path)), tree)
        return
    target = local_path(path).absolute()
    if target.name in ("", ".."):
        raise CheckpointError(f"{path} names no directory to save to")
    if (group := form.group(tree)) is not None:
        _save_jointly(form, target, tree, group)
        return
    _require_new(target)
    _save_to_disk(form, target, TreeSnapshot(form, tree, items=False))


def _require_new(target: Path) -> None:
    if os.path.lexists(target):
        raise CheckpointError(f"{target} exists already; it is not overwritten: remove it, or give another name")


def _save_to_store(form: TreeForm, url: StoreUrl, tree: Any) -> None:
    """Save a tree to a place at a store: written and sealed on this machine, sent, and removed here."""
    snapshot = TreeSnapshot(form, tree, items=False)
    stored = StoredTrees(url, LONE)
    storage.make_directory(stored.home)
    try:
        with WriterLock(stored.home), closing(stored), tempfile.TemporaryDirectory(prefix="parity-") as folder:
            stored.open()
            if stored.whole():
                raise CheckpointError(f"{url} exists already; it is not overwritten: give another name")
            path = Path(folder, url.name)
            _save_to_disk(form, path, snapshot)
            stored.send(path, None)
    except LockedError as error:
        raise CheckpointError(f"{url} is being saved by another: {error.owner}") from error


def _save_jointly(form: TreeForm, target: Path, tree: Any, group: SavingGroup) -> None:
    """Save a tree with other processes; process 0 has the draft, and the others write into it."""
    first = group.index == 0
    given = {"the directory": str(target)}
    snapshot, _ = snapshot_joint(form, tree, group, given, lambda: _require_new(target), items=False)
    scalars = snapshot.scalars()
    save = SaveUnderWay(step=0, metric=None, saved_at=time.time(), snapshot=snapshot, scalars=scalars)
    with ExitStack() as stack:

        def opened() -> Path:
            try:
                return stack.enter_context(_draft(target)) if first else _draft_of(target)
            except LockedError as error:
                raise CheckpointError(f"{target} is being saved by another: {error.owner}") from error

        draft = attempt(group, opened)

        def finish(files: Mapping[str, FileDigest], places: Mapping[str, tuple[ByteRange, ...]]) -> None:
            commit(draft, target, save.seal(form.side, LONE, files, places))

        try:
            begun = snapshot.begin_together(draft)
            write_joint(form, save, {"scalars": scalars}, draft, begun, group, finish)
        except SaveError as error:
            raise CheckpointError(f"{target} is saved, but work after it failed: {error}") from error
        except CheckpointError as error:
            raise CheckpointError(f"{target} could not be saved: {error}") from error


def _save_to_disk(form: TreeForm, target: Path, snapshot: TreeSnapshot) -> None:
    try:
        with _draft(target) as draft:
            save = SaveUnderWay(
                step=0, metric=None, saved_at=time.time(), snapshot=snapshot, scalars=snapshot.scalars()
            )
            files, places = snapshot.write(draft, {"scalars": save.scalars}, save.leaves())
            commit(draft, target, save.seal(form.side, LONE, files, places))
    except LockedError as error:
        raise CheckpointError(f"{target} is being saved by another: {error.owner}") from error
    except CheckpointError:
        raise
    except Exception as error:  # Orbax and TensorStore have no common error for a full disk
        saved = isinstance(error, SaveError) and error.saved
        cause = error.__cause__ if saved and error.__cause__ is not None else error
        what = "is saved, but work after it failed" if saved else "could not be saved"
        raise CheckpointError(f"{target} {what}: {form.reason(cause, target)}") from error


def restore_tree(form: TreeForm, path: str | os.PathLike[str], request: RestoreRequest) -> RestoredTree:
    """Restore a tree, after every byte of it was compared with its seal; `restore` of a side calls it.

    Args:
        form: What the framework restores.
        path: A directory that `save_tree` made, one step of a manager, or a checkpoint of another tool or of a
            conversion; or the URL of one at a store: a file or a directory of any format that `parity.formats` opens.
        request: The template, and what may differ from it.

    Raises:
        DamagedError: The checkpoint is not what was sealed; names each file and leaf.
        UnsealedError: It was saved by `save_tree` or a manager, and its seal is gone.
        CheckpointError: There is none, it is of a run or of another side, or it does not fit the template; names each
            leaf.
        RunDirectoryError: The path is a URL of another kind.
        StoreError: The store refused or was not reached.
    """
    if is_url(path):
        with on_disk(parse_url(os.fspath(path))) as fetched:
            return restore_from(form, fetched, request, os.fspath(path))
    target = local_path(path)
    if not os.path.lexists(target):
        raise CheckpointError(f"{target}: there is no checkpoint")
    with while_it_stays(target):
        return restore_from(form, target, request)


def restore_from(form: TreeForm, target: Path, request: RestoreRequest, name: str | None = None) -> RestoredTree:
    """Restore a tree from a local directory or file, with other processes where the template lies in several.

    Args:
        form: As of `restore_tree`.
        target: The checkpoint.
        request: As of `restore_tree`.
        name: What the checkpoint was called, if that is not its path.

    Raises:
        CheckpointError: As of `restore_tree`.
    """
    if (group := form.group(request.like)) is not None:
        opened = partial(_opened, form, target, request, together=True)
        return restore_joint(target, name or str(target), group, opened)
    seal = require_verified(target) if os.path.lexists(target / FILE) else None
    pending = _opened(form, target, request, seal)
    if seal is None or seal.spec_hash == LONE:
        return pending.finish()
    return pending.finish(seal.step, seal.metric)


def _opened(
    form: TreeForm, target: Path, request: RestoreRequest, seal: Seal | None, *, together: bool = False
) -> Pending:
    """Return what was read of a checkpoint whose bytes were verified, whole arrays compared with the seal."""
    if seal is None:
        known = seal_of_file(target)
        as_saved = known is not None and not known.foreign
        return read_foreign(form, open_foreign(target), request, sealed=known is not None, as_saved=as_saved)
    if seal.spec_hash not in (LONE, TREES):
        raise CheckpointError(f"{target} is a checkpoint of a run, and no tree that was saved; load_model reads it")
    if not is_described(target):  # a conversion
        pending = read_foreign(form, open_foreign(target), request, sealed=True, as_saved=not seal.foreign)
    elif seal.side != form.side:
        raise CheckpointError(
            f"{target} was saved by the side {seal.side!r}; {form.side!r} cannot read it: `parity convert` turns the "
            "axes of matrices, and writes it for the other framework"
        )
    else:
        pending = read_tree(form, target, request, together=together and seal.schema == SCHEMA)
    arrays, _ = pending.neutral()
    require_sealed(seal, TrainingState(arrays=arrays), partial=True)
    return pending


def _draft_of(target: Path) -> Path:
    """Return the directory of the draft of a tree, in one that holds nothing else but the lock of its writer."""
    return target.with_name(f"{DRAFT}{target.name}") / f"{DRAFT}{target.name}"


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yield the directory that a tree is written to, beside its target; what an earlier save left there is removed.

    Its parent holds the lock of the one that writes; it is removed, with all in it, when the block ends.
    """
    storage.make_directory(target.parent)
    home = _draft_of(target).parent
    with storage.named(home, "lock"), WriterLock(home) as lock:
        try:
            for entry in home.iterdir():
                if entry != lock.path:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            yield _draft_of(target)
        finally:
            with suppress(OSError):  # the disk may have failed; the next save of this name removes it
                shutil.rmtree(home)
