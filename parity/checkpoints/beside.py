"""The seal of a checkpoint that is a single file: it lies beside it, as `.NAME.seal.json`.

The name is hidden, as tools look for checkpoints by their names: Flax would take `checkpoint_3.seal.json` for one. A
file that names others beside it, as an index does its shards, is sealed together with them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from parity import storage
from parity.checkpoints.seal import FILE, Seal, parse_seal, seal_text
from parity.checkpoints.verify import Fault, Verified
from parity.errors import CheckpointError, UnsealedError
from parity.storage import digest_files, read_bytes

__all__ = ["commit_file", "read_seal_beside", "seal_beside", "verify_file"]


def seal_beside(path: Path) -> Path:
    """Return where the seal of a file is."""
    return path.with_name(f".{path.name}.{FILE}")


def commit_file(draft: Path, final: Path, seal: Seal) -> Seal:
    """Seal a finished file, make both durable, and give the file its name last.

    Args:
        draft: The file, beside its final place.
        final: Its name; a seal that lies there without a file is of an attempt that was killed, and replaced.
        seal: What is known of the content; a file without a digest, under its final name, is digested now.

    Returns:
        The seal as written.

    Raises:
        OSError: The disk is full, or failed; the file does not have its name.
    """
    digest = seal.files.get(final.name) or digest_files(draft.parent, [draft.name])[draft.name]
    seal = replace(seal, files={final.name: digest})
    storage.fsync_files([draft])
    storage.replace_file(seal_beside(final), seal_text(seal))
    with storage.named(draft, "rename"):
        draft.rename(final)
    storage.fsync_directory(final.parent)
    return seal


def read_seal_beside(path: Path) -> Seal:
    """Return the seal of a file.

    Raises:
        UnsealedError: There is none.
        CheckpointError: It is not what was written, is of another file, or names a file that does not lie beside it.
    """
    place = seal_beside(path)
    if not os.path.lexists(place):
        raise UnsealedError(f"{path} has no seal beside it: {place.name} is missing")
    seal = parse_seal(read_bytes(place), place)
    if path.name not in seal.files:
        raise CheckpointError(f"{place} is the seal of {', '.join(seal.files)}, not of {path.name}")
    if far := [name for name in seal.files if "/" in name]:
        raise CheckpointError(f"{place} names {far[0]}, which does not lie beside it")
    return seal


def verify_file(path: Path) -> Verified:
    """Compare a file, and those sealed with it, with the seal beside it; damage is returned, never raised."""
    try:
        seal = read_seal_beside(path)
    except CheckpointError as error:
        fault = Fault(file=seal_beside(path).name, problem=str(error))
        return Verified(path=path, faults=(fault,), unsealed=isinstance(error, UnsealedError))
    faults = []
    for name, sealed in seal.files.items():
        try:
            found = digest_files(path.parent, [name])[name]
        except OSError as error:
            faults.append(Fault(file=name, problem=str(error)))
            continue
        if found != sealed:
            faults.append(Fault(file=name, problem="does not hold the sealed bytes"))
    return Verified(path=path, seal=seal, faults=tuple(faults))
