"""The seal of a checkpoint: a manifest of every file and every leaf, written last, before the rename.

A step exists exactly when `checkpoints/<step>/` holds a valid `seal.json`. The seal is canonical JSON: any other
spelling of the same content, and any changed byte, is refused. New seals have schema 2; those of schema 1 are read
and verified as they were written (docs/versions.md).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import xxhash

from parity import storage
from parity.checkpoints.ranges import ByteRange, item_size
from parity.errors import CheckpointError, OtherRunError, SaveError, UnsealedError, explain
from parity.state import SCHEMA, DigestSchema, read_text
from parity.storage import (
    ALGORITHM,
    FileDigest,
    Misfit,
    digest_files,
    list_files,
    parse_json,
    plain,
    read_bytes,
    shown,
)

__all__ = [
    "DESCRIPTION",
    "FILE",
    "FOREIGN",
    "LONE",
    "Seal",
    "after_save",
    "commit",
    "examine",
    "parse_seal",
    "read_seal",
    "require_own",
    "seal_text",
]

FILE = "seal.json"
SCHEMAS: Mapping[str, DigestSchema] = {"parity.seal/1": 1, "parity.seal/2": 2}
LONE = "tree"
"""What the seal of a tree that was saved by itself has in place of the hash of a run; it has no step, and its
directory may have any name."""
FOREIGN = "another tool"
"""The side of the seal of a checkpoint that another tool saved and that was sealed afterwards, with `LONE`: it has
the digests of files, and none of leaves."""
DESCRIPTION = "@tree"
"""The leaf that describes a tree: its containers and all values that are no arrays."""
SMALL = 64 << 10
"""Files of at most so many bytes are digested by every look at a checkpoint."""

_HEX = re.compile(r"[0-9a-f]{32}")
_LEAF = re.compile(r"\S+ .+", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Seal:
    """What a checkpoint is made of."""

    step: int
    metric: float | None
    saved_at: float
    """Seconds since the epoch."""
    side: str
    spec_hash: str
    """Hash over what gives the run its meaning: model, optimizer, schedule, precision, data, seed."""
    versions: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    """By POSIX path below the checkpoint; the seal itself is not among them."""
    leaves: Mapping[str, str] = field(default_factory=dict)
    """Neutral leaf path to `type digest`, as `leaf_digests` makes them, in the order of the axes in memory."""
    places: Mapping[str, tuple[ByteRange, ...]] = field(default_factory=dict)
    """Leaf path to where its bytes lie, for the leaves of which that is known."""
    schema: DigestSchema = SCHEMA
    """The schema of the seal and of the digests of its leaves."""

    @property
    def complete(self) -> bool:
        """Return whether every leaf of the state is named: of a run, and of a tree with its description.

        The seal of a conversion names arrays alone, and one that was made afterwards nothing.
        """
        return self.spec_hash != LONE or DESCRIPTION in self.leaves

    @property
    def foreign(self) -> bool:
        """Return whether another tool saved the checkpoint: what it held when it was sealed is all that is known."""
        return self.side == FOREIGN and self.spec_hash == LONE


def commit(draft: Path, final: Path, seal: Seal) -> Seal:
    """Seal a finished draft, make it durable, and give it its final name.

    Args:
        draft: Directory with every file of the checkpoint, beside its final place.
        final: `checkpoints/<step>`.
        seal: What is known; files without a digest are digested now, by several threads.

    Returns:
        The seal as written.

    Raises:
        OSError: The disk is full, or failed; the draft stays a leftover, and nothing else was touched.
        SaveError: It has its final name and is whole, but a crash may still take the name away.
    """
    known = dict(seal.files)
    files = {**known, **digest_files(draft, [name for name in list_files(draft) if name not in known])}
    seal = replace(seal, files=dict(sorted(files.items())))
    storage.write_file(draft / FILE, seal_text(seal))
    storage.fsync_tree(draft)
    with storage.named(draft, "rename"):
        draft.rename(final)
    with after_save(seal.step):
        storage.fsync_directory(final.parent)
    return seal


@contextmanager
def after_save(step: int) -> Iterator[None]:
    """Raise what fails in the block as a SaveError of a step that is saved: it only follows the save.

    Args:
        step: The step.

    Raises:
        SaveError: The block raised an Exception, which is its cause; `saved` is true.
    """
    try:
        yield
    except Exception as error:
        raise SaveError(step, storage.reason(error), saved=True) from error


def examine(path: Path) -> Seal:
    """Return the seal of a checkpoint whose files are all there with their sizes; only small ones are read.

    The small ones describe the others, and a framework may look at every checkpoint's before it opens one.

    Raises:
        UnsealedError: There is no seal.
        CheckpointError: The seal is not valid or not of this step, or a file is missing, unexpected, or of another
            size.
    """
    seal = read_seal(path)
    if str(seal.step) != path.name:
        raise CheckpointError(f"its seal is of step {seal.step}; the directory was renamed")
    faults = compare_listing(seal, list_files(path))
    if not faults:
        small = [name for name, digest in seal.files.items() if digest.size <= SMALL]
        found = digest_files(path, small)
        faults = [
            (name, "does not hold the bytes that were sealed") for name in small if found[name] != seal.files[name]
        ]
    if faults:
        raise CheckpointError("; ".join(f"{name} {problem}" for name, problem in faults[:3]))
    return seal


def compare_listing(seal: Seal, listing: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the files that are missing, unexpected, or of another size, each with what is wrong."""
    faults = []
    for name in sorted({*seal.files, *listing} - {FILE}):
        size = listing.get(name)
        expected = seal.files.get(name)
        if expected is None:
            faults.append((name, "is not in the seal"))
        elif size is None:
            faults.append((name, "is missing"))
        elif size != expected.size:
            faults.append((name, f"has {size} bytes, was sealed with {expected.size}"))
    return faults


def read_seal(path: Path) -> Seal:
    """Read and check the seal of a checkpoint directory.

    Raises:
        UnsealedError: There is none.
        CheckpointError: It is not exactly what was written: another byte, another type, a path that leads outside.
    """
    if path.is_symlink():
        raise CheckpointError(f"{path} is a link; a checkpoint lies in the run itself")
    if not os.path.lexists(path / FILE):
        raise UnsealedError(f"{path} has no seal: {FILE} is missing, and nothing else proves that it is whole")
    return parse_seal(read_bytes(path / FILE), path / FILE)


def parse_seal(data: bytes, where: Path | str) -> Seal:
    """Return the seal that a file holds.

    Args:
        data: Content of the file.
        where: The file, for messages.

    Raises:
        CheckpointError: It is not exactly what was written.
    """
    value = parse_json(data, where)
    try:
        seal = _decode(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{where} is not a seal: {explain(error)}") from error
    if seal_text(seal).encode() != data:
        raise CheckpointError(f"{where} was changed: its own digest does not fit")
    return seal


def require_own(seal: Seal, spec_hash: str) -> None:
    """Check that a checkpoint is of the run it lies in, before anything of its content is read.

    Args:
        seal: The seal of the checkpoint.
        spec_hash: Hash of the run.

    Raises:
        OtherRunError: It was sealed with the hash of another run.
    """
    if seal.spec_hash != spec_hash:
        raise OtherRunError(seal.step, seal.spec_hash, spec_hash)


def seal_text(seal: Seal) -> str:
    """Return the text of a seal: canonical JSON that ends with a digest of itself."""
    value: dict[str, Any] = {
        "schema": f"parity.seal/{seal.schema}",
        "step": seal.step,
        "metric": plain(seal.metric),
        "saved_at": seal.saved_at,
        "side": seal.side,
        "spec_hash": seal.spec_hash,
        "versions": dict(seal.versions),
        "algorithm": ALGORITHM,
        "files": {name: [d.size, d.digest] for name, d in seal.files.items()},
        "leaves": dict(seal.leaves),
        "places": {leaf: [[p.file, p.start, p.size, p.digest] for p in at] for leaf, at in seal.places.items()},
    }
    text = json.dumps(value, indent=1, allow_nan=False)
    return f'{text[:-2]},\n "self": "{xxhash.xxh3_128_hexdigest(text.encode())}"\n}}\n'


def _decode(value: Mapping[str, Any]) -> Seal:
    schema = SCHEMAS.get(str(value["schema"]))
    if schema is None or value["algorithm"] != ALGORITHM:
        known = " and ".join(SCHEMAS)
        raise ValueError(
            f"written as {shown(value['schema'])} with {shown(value['algorithm'])}, this version reads {known}"
        )
    files = {
        _inside(name): FileDigest(_size(size, name), _digest(digest, name))
        for name, (size, digest) in value["files"].items()
    }
    leaves = {_text(k, "leaves"): _leaf(v, k) for k, v in value["leaves"].items()}
    places = {leaf: tuple(_place(one, leaf, schema) for one in at) for leaf, at in value["places"].items()}
    for leaf, at in places.items():
        if leaf not in leaves or any(place.file not in files for place in at):
            raise ValueError(f"the place of {leaf!r} is not one of its own")
        array = read_text(leaves[leaf])
        for place in at:
            if place.digest is None and (array is None or array.schema == 1 or item_size(place, array.shape) is None):
                raise ValueError(f"the place of {leaf!r} has no digest and does not hold {leaves[leaf][:80]!r}")
    _check_extent(places, files)
    metric = value["metric"]
    _require(metric in (None, "nan", "inf", "-inf") or type(metric) is float, "metric", "a float", metric)
    return Seal(
        step=_size(value["step"], "step"),
        metric=None if metric is None else float(metric),
        saved_at=_time(value["saved_at"], "saved_at"),
        side=_text(value["side"], "side"),
        spec_hash=_text(value["spec_hash"], "spec_hash"),
        versions={_text(k, "versions"): _text(v, k) for k, v in value["versions"].items()},
        files=files,
        leaves=leaves,
        places=places,
        schema=schema,
    )


def _place(value: Any, leaf: str, schema: DigestSchema) -> ByteRange:
    file, start, size, digest = value
    known = None if digest is None and schema == 2 else _digest(digest, leaf)
    return ByteRange(_inside(file), _size(start, leaf), _size(size, leaf), known)


def _inside(name: Any) -> str:
    """Return a relative path that stays inside; as text it must be what it is as a path."""
    _text(name, "files").encode("utf-8")  # a lone surrogate names no file
    if {"", ".", ".."} & set(name.split("/")) or "\0" in name or name == FILE:  # "/a" and "a//b" have an empty part
        raise ValueError(f"{name!r} is no path inside a checkpoint")
    return str(name)


def _size(value: Any, where: str) -> int:
    return _require(type(value) is int and 0 <= value < 1 << 62, where, "a size", value)


def _time(value: Any, where: str) -> float:
    return _require(type(value) is float and math.isfinite(value), where, "a time", value)


def _leaf(value: Any, where: str) -> str:
    return _require(_LEAF.fullmatch(_text(value, where)) is not None, where, "type and digest", value)


def _check_extent(places: Mapping[str, tuple[ByteRange, ...]], files: Mapping[str, FileDigest]) -> None:
    """Refuse places that cover a file more than once: reading them could take any time.

    Leaves may share a range that has a digest, which is read once; without one it is read for each leaf.
    """
    every = [place for at in places.values() for place in at]
    covered = dict.fromkeys(files, 0)
    for place in [place for place in every if place.digest is None] + list({p for p in every if p.digest}):
        covered[place.file] += place.size
    for name, size in covered.items():
        if size > files[name].size:
            raise ValueError(f"its places cover {size} bytes of {name!r}, which has {files[name].size}")


def _digest(value: Any, where: str) -> str:
    return _require(type(value) is str and _HEX.fullmatch(value) is not None, where, "a digest", value)


def _text(value: Any, where: str) -> str:
    return _require(type(value) is str, where, "a text", value)


def _require(fits: bool, where: str, expected: str, value: Any) -> Any:
    """Return a value that fits; raise Misfit for another one."""
    if not fits:
        raise Misfit(where, expected, value)
    return value
