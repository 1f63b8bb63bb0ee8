"""A conversion from beginning to end: open, map, check the room, write a draft, seal it, and give it its name."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checkpoints import FILE, LONE, Seal, commit, commit_file, describe, seal_beside, verify, verify_file
from parity.convert.checksums import ChecksumsBeside, with_checksums
from parity.convert.digesting import Digests
from parity.convert.drafts import draft_of, require_free
from parity.convert.ledger import Action, Entry, Ledger
from parity.convert.naming import keeps_order
from parity.convert.objects import require_resets, without_objects
from parity.convert.opening import open_any
from parity.convert.reading_back import require_same
from parity.convert.selecting import find_keys, renamed, select
from parity.convert.to_jax import DOCUMENT, Options, to_jax
from parity.convert.to_torch import to_torch
from parity.convert.torch_state import read_torch_state
from parity.convert.views import overlapping
from parity.environment import versions
from parity.errors import CheckpointError, explain
from parity.formats import (
    FAMILIES,
    HUGGING_FACE,
    Array,
    Key,
    Opaque,
    Source,
    Tree,
    Writer,
    copy_companions,
    leaf_name,
    leaves,
    map_leaves,
)
from parity.mapping import ConversionRules
from parity.storage import FileDigest, digest_files, fsync_files, fsync_tree, list_files, named

__all__ = ["convert", "map_tree", "mapped", "without_document"]

MOST_STEP = 1 << 62
"""What a seal holds as a step; a larger number, such as a time in nanoseconds of a far day, counts no steps."""

ROOM = 1.02
"""Free space that is needed, in bytes of arrays: headers and directories beside them."""


def convert(
    source: Path, target: Path, writer: Writer, options: Options, *, like: Path | None = None, now: float
) -> Ledger:
    """Convert a checkpoint; what is refused is in the ledger, and then nothing is written.

    Args:
        source: The checkpoint; it is only read. Where it has a seal, every byte is compared with it first; else with
            the checksums that its format has.
        target: A path that does not exist.
        writer: Of the format that is wanted.
        options: What was asked for.
        like: A PyTorch checkpoint to take names and groups from, on the way from JAX.
        now: Seconds since the epoch, for the seal.

    Returns:
        A line for every leaf. Where `refused` is true, or `crossed` is not, there is no target.

    Raises:
        CheckpointError: The target exists, or its parent does not; there is too little room; the source is damaged,
            or cannot be converted.
        OSError: The disk is full or failed; the draft is removed.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from parity.formats import SAFETENSORS, InMemory
        >>> with tempfile.TemporaryDirectory() as home:
        ...     source, target = Path(home, "old.safetensors"), Path(home, "new.safetensors")
        ...     SAFETENSORS.write({"w": InMemory(np.ones(2, np.float32))}, source)
        ...     ledger = convert(source, target, SAFETENSORS, Options(), now=0.0)
        ...     print([(line.leaf, line.action) for line in ledger.entries], verify_file(target).whole)
        [('w', 'copied')] True
    """
    require_free(target)
    proven = _require_whole(source)
    ledger = Ledger()
    opened = _require_state(open_any(source))
    if opened.path != source:  # a step of the directory that was given: its seal lies in it
        proven = _require_whole(opened.path)
    _require_apart(opened.path, target)
    ledger.notes += opened.notes
    opened = _with_parts(_with_keys(opened, options.keys, ledger), options, ledger)
    tree = map_tree(opened, writer.format, options, ledger, None if like is None else open_any(like))
    require_resets(options.reset, (opened.tree, tree), ledger)
    for name, why in writer.cannot_hold(tree) if ledger.entries else ():
        ledger.entries = [entry for entry in ledger.entries if entry.target != name]
        ledger.add(name, "refused", how=f"{writer.format} cannot hold it: {why}")
    if ledger.refused or not ledger.crossed:
        return ledger
    _note_keys(tree, writer, ledger)
    _note_views(opened.tree, ledger)
    _require_room(target, tree, writer)
    checksums = None if proven else ChecksumsBeside(opened)
    with draft_of(target) as draft, Digests() as digests:
        _write(writer, map_leaves(tree, digests.watch), draft.path, digests, source)
        if writer.format == HUGGING_FACE.format and opened.path.is_dir():
            for name in copy_companions(opened.path, draft.path):
                ledger.add(name, "copied", name, "a file of the model folder")
        files = _durable(
            draft.path,
            target,
            writer,
            lambda: require_same(tree, digests, lambda: writer.read(draft.path), target),
        )
        if checksums is not None:
            checksums.require_none()
        seal = Seal(
            step=_step(tree),
            metric=None,
            saved_at=now,
            side=FAMILIES.get(writer.format, "torch"),
            spec_hash=LONE,
            versions=versions(),
            leaves=digests.texts(),
            files=files,
        )
        with draft.turn():
            (commit if writer.directory else commit_file)(draft.path, target, seal)
    return ledger


def map_tree(opened: Source, to: str, options: Options, ledger: Ledger, like: Source | None = None) -> Tree:
    """Return the tree of a checkpoint as another format has it: across frameworks by rules, else as it is.

    Args:
        opened: The checkpoint.
        to: Name of the format that is wanted, one of `FORMATS`.
        options: What was asked for.
        ledger: Takes a line for each leaf.
        like: As of `to_torch`.

    Raises:
        CheckpointError: As of `to_jax` and `to_torch`; or rules are given where both formats are of one framework, or
            the parameters alone are wanted and there are none.
    """
    family, wanted = FAMILIES.get(opened.format, "torch"), FAMILIES.get(to, "torch")
    if family == "torch":  # before the model is looked for, which has arrays alone
        opened = replace(opened, tree=without_objects(opened.tree, (), options.reset, ledger, all_of=False))
    if (family, wanted) == ("torch", "jax"):
        return to_jax(opened.tree, options, ledger, ordered=keeps_order(opened))
    if (family, wanted) == ("jax", "torch"):
        return to_torch(opened.tree, options, ledger, like, str(opened.path))
    if options.rules.rules:
        raise CheckpointError(f"rules lead from PyTorch to JAX, and {opened.format} and {to} are both of {family}")
    if not options.only_params:
        tree = without_objects(opened.tree, (), options.reset, ledger)
        ledger.entries += _lines(leaves(tree), "copied")
        return tree
    kept, rest = _params(opened, family)
    ledger.entries += [
        *_lines(leaves(kept), "copied"),
        *_lines(rest, "left out", "only the parameters were asked for"),
    ]
    return kept


def _note_keys(tree: Tree, writer: Writer, ledger: Ledger) -> None:
    """Say which random keys are their data alone in a format that has no keys."""
    keys = [(leaf_name(at), one.random_key) for at, one in leaves(tree) if isinstance(one, Array) and one.random_key]
    if keys and writer.format != "orbax":
        names = ", ".join(f"{name} ({kind})" for name, kind in keys[:4]) + (", ..." if len(keys) > 4 else "")
        ledger.notes.append(f"random keys are their data alone, as {writer.format} has no keys: {names}")


def _note_views(tree: Tree, ledger: Ledger) -> None:
    """Say which arrays share elements with others, as each has its own from here on."""
    if views := overlapping(tree):
        names = ", ".join(views[:4]) + (f" and {len(views) - 4} more" if len(views) > 4 else "")
        ledger.notes.append(f"views of one storage become arrays of their own, equal in value: {names}")


def _require_state(opened: Source) -> Source:
    """Refuse a checkpoint that is one object, such as a whole module, and one whose leaves are no whole ones."""
    if opened.divided:
        raise CheckpointError(f"{opened.path} is not converted: {opened.divided}")
    if isinstance(opened.tree, Opaque):
        raise CheckpointError(
            f"{opened.path} is an {opened.tree} as a whole, which only its code could rebuild: load it with PyTorch "
            "and save its state_dict() instead"
        )
    if isinstance(opened.tree, Array):
        raise CheckpointError(
            f"{opened.path} is one array, {opened.tree}, without a name: save it in a dict, such as {{'weight': x}}"
        )
    return opened


def _with_keys(opened: Source, keys: Collection[str] | None, ledger: Ledger) -> Source:
    """Return a checkpoint with some of its parts, by dotted keys; the others get their lines."""
    if keys is None:
        return opened
    paths = find_keys(opened.tree, keys, str(opened.path))
    kept = set(paths)
    lengths = {len(path) for path in paths}
    for at, leaf in leaves(opened.tree):
        if not any(at[:n] in kept for n in lengths):
            size = leaf.nbytes if isinstance(leaf, Array) else 0
            ledger.add(leaf_name(at), "left out", how="not among the keys that were asked for", size=size)
    return replace(opened, tree=select(opened.tree, paths))


def _with_parts(opened: Source, options: Options, ledger: Ledger) -> Source:
    """Return a checkpoint of JAX whose parts have the names that conversions know, as `--as` says."""
    if not options.parts:
        return opened
    if FAMILIES.get(opened.format, "torch") != "jax":
        raise CheckpointError(
            f"{opened.path} is {opened.format}, of PyTorch, whose parts are known by what they hold: leave --as out"
        )
    ledger.notes += [f"{key} is taken for {name}, as --as says" for name, key in options.parts.items()]
    return replace(opened, tree=renamed(opened.tree, options.parts, str(opened.path)))


def mapped(source: Source, rules: ConversionRules) -> Source:
    """Return a checkpoint of PyTorch as JAX has it, to compare it with one of JAX.

    Args:
        source: The checkpoint of PyTorch.
        rules: Its names in JAX; a name without a rule keeps its own.

    Raises:
        CheckpointError: It has no model, or the rules do not fit its names.
    """
    tree = to_jax(source.tree, Options(rules=rules), Ledger(), ordered=keeps_order(source))
    return without_document(replace(source, tree=tree, digests={}))


def without_document(source: Source) -> Source:
    """Return a checkpoint of JAX without the document that a conversion left in it."""
    tree = source.tree
    if not isinstance(tree, dict) or DOCUMENT not in tree:
        return source
    return replace(source, tree={key: child for key, child in tree.items() if key != DOCUMENT})


def _lines(there: Iterable[tuple[tuple[Key, ...], Any]], action: Action, how: str = "") -> list[Entry]:
    found = ((leaf_name(k), leaf.nbytes if isinstance(leaf, Array) else 0) for k, leaf in there if k)
    return [Entry(name, action, "" if how else name, how, size) for name, size in found]


def _params(opened: Source, family: str) -> tuple[Tree, list[tuple[tuple[Key, ...], Any]]]:
    """Return the parameters of a tree, and the leaves of all else with their keys."""
    tree = opened.tree
    if family == "jax":
        if not isinstance(tree, dict) or "params" not in tree:
            raise CheckpointError(f"{opened.path} has no params")
        return {"params": tree["params"]}, [(keys, leaf) for keys, leaf in leaves(tree) if keys[:1] != ("params",)]
    state = read_torch_state(tree, alone=True)
    kept = {state.spelled[name]: array for name, array in state.model.items()}
    own = {(*state.model_at, name) for name in kept}
    return kept, [(keys, leaf) for keys, leaf in leaves(tree) if keys not in own]


def _require_whole(source: Path) -> bool:
    """Compare a source that has a seal with it, to the last byte: damage must not be sealed anew as whole.

    Returns:
        Whether it has a seal, and so was compared.

    Raises:
        CheckpointError: It is damaged.
    """
    if source.is_dir() and os.path.lexists(source / FILE):
        found = with_checksums(verify(source))
    elif source.is_file() and os.path.lexists(seal_beside(source)):
        found = with_checksums(verify_file(source))
    else:
        return False
    if not found.whole:
        name, problem = describe(found.faults)[0]
        raise CheckpointError(f"{source} is damaged: {name} {problem}; nothing was converted")
    return True


def _require_apart(source: Path, target: Path) -> None:
    """Refuse a target within the checkpoint that is read, or within a sealed one: no seal of it would fit."""
    if source.is_dir() and target.resolve().is_relative_to(source.resolve()):
        raise CheckpointError(f"{target} lies within {source}, which is only read: give a path beside it")
    for home in target.resolve().parents:
        if os.path.lexists(home / FILE):
            raise CheckpointError(
                f"{target} lies within {home}, which is sealed, and its seal would not fit any more; "
                "give a path beside it"
            )


def _require_room(target: Path, tree: Tree, writer: Writer) -> None:
    needed = int(sum(leaf.nbytes for _, leaf in leaves(tree) if isinstance(leaf, Array)) * ROOM) + (1 << 16)
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise CheckpointError(
            f"{target.parent} has {free:,} bytes free, and {writer.format} needs about {needed:,}: nothing written"
        )


def _durable(draft: Path, target: Path, writer: Writer, check: Callable[[], None]) -> dict[str, FileDigest]:
    """Check and digest what was written while it goes to the disk; names are those of the seal."""
    with ThreadPoolExecutor(1) as pool:
        if writer.directory:
            durable = pool.submit(fsync_tree, draft)
            check()
            found = digest_files(draft, list_files(draft))
        else:
            durable = pool.submit(fsync_files, [draft])
            check()
            found = {target.name: digest_files(draft.parent, [draft.name])[draft.name]}
        durable.result()
    return found


def _step(tree: Tree) -> int:
    value = tree.get("step") if isinstance(tree, dict) else None
    return value if type(value) is int and 0 <= value < MOST_STEP else 0


def _write(writer: Writer, tree: Tree, draft: Path, digests: Digests, source: Path) -> None:
    """Have a writer write a draft; libraries raise errors of their own where the system refuses a write.

    Raises:
        CheckpointError: The source could not be read, whatever the writer made of that.
        OSError: The draft could not be written.
    """
    try:
        with named(draft, "write"):
            writer.write(tree, draft)
    except Exception as error:
        if digests.failure is None:
            raise _write_failure(writer, draft, error) from error
        if isinstance(digests.failure, CheckpointError):
            raise digests.failure from error
        raise CheckpointError(f"{source} cannot be read: {explain(digests.failure)}") from error


def _write_failure(writer: Writer, draft: Path, error: Exception) -> Exception:
    """Return the failure of a writer as the system's, named as if it had come through."""
    if isinstance(error, OSError) or not isinstance(error, RuntimeError | ValueError | SystemError):
        return error
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, OSError):
        failed = OSError(cause.errno, cause.strerror, str(cause.filename or draft))
    else:
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        failed = OSError(errno.EIO, f"{writer.format} could not be written: {lines[0][:300]}", str(draft))
    vars(failed)["operation"] = "write"
    return failed
