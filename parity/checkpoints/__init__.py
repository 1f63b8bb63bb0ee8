"""Checkpoint directories: seal, verify and compare one; list, choose, point to and evict those of a run.

Knows no framework: what is in a checkpoint is files and digests of leaves.
"""

from parity.checkpoints.compare import compare
from parity.checkpoints.pointers import read_pointer, write_pointers
from parity.checkpoints.ranges import ByteRange, is_intact
from parity.checkpoints.saving import Checkpoints, Neutral, Save, fitting
from parity.checkpoints.seal import (
    FILE,
    Seal,
    after_save,
    commit,
    encode,
    examine,
    read_seal,
    require_own,
)
from parity.checkpoints.store import DRAFT, CheckpointStore, Scan
from parity.checkpoints.verify import (
    Fault,
    Restored,
    Verified,
    describe,
    read_scalars,
    require_sealed,
    require_verified,
    verify,
)

__all__ = [
    "DRAFT",
    "FILE",
    "ByteRange",
    "CheckpointStore",
    "Checkpoints",
    "Fault",
    "Neutral",
    "Restored",
    "Save",
    "Scan",
    "Seal",
    "Verified",
    "after_save",
    "commit",
    "compare",
    "describe",
    "encode",
    "examine",
    "fitting",
    "is_intact",
    "read_pointer",
    "read_scalars",
    "read_seal",
    "require_own",
    "require_sealed",
    "require_verified",
    "verify",
    "write_pointers",
]
