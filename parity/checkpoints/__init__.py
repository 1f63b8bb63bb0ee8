"""Checkpoint directories: seal, verify and compare one; the pointers that name the latest and the best.

Knows no framework: what is in a checkpoint is files and digests of leaves.
"""

from parity.checkpoints.compare import compare
from parity.checkpoints.pointers import read_pointer, write_pointers
from parity.checkpoints.ranges import ByteRange, is_intact
from parity.checkpoints.seal import (
    FILE,
    Seal,
    after_save,
    clock_set_to,
    commit,
    encode,
    examine,
    now,
    read_seal,
    require_own,
)
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
    "FILE",
    "ByteRange",
    "Fault",
    "Restored",
    "Seal",
    "Verified",
    "after_save",
    "clock_set_to",
    "commit",
    "compare",
    "describe",
    "encode",
    "examine",
    "is_intact",
    "now",
    "read_pointer",
    "read_scalars",
    "read_seal",
    "require_own",
    "require_sealed",
    "require_verified",
    "verify",
    "write_pointers",
]
