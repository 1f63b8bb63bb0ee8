"""Checkpoint directories: seal, verify and compare one; list, choose, point to and evict those of a run.

Knows no framework: what is in a checkpoint is files and digests of leaves.
"""

from parity.checkpoints.beside import commit_file, read_seal_beside, seal_beside, verify_file
from parity.checkpoints.compare import compare, sealed_alike, seems_whole
from parity.checkpoints.label import LABEL, label_of
from parity.checkpoints.meanwhile import identities, identity, steadily, while_it_stays
from parity.checkpoints.neutral import neutral_source
from parity.checkpoints.pointers import mode_in, read_mode, read_pointer
from parity.checkpoints.ranges import ByteRange, is_intact
from parity.checkpoints.saving import Checkpoints, Labels, Neutral, SaveUnderWay, fitting
from parity.checkpoints.seal import (
    DESCRIPTION,
    FILE,
    FOREIGN,
    LONE,
    Seal,
    after_save,
    commit,
    examine,
    parse_seal,
    read_seal,
    require_own,
    seal_text,
)
from parity.checkpoints.since import untouched_since
from parity.checkpoints.store import DRAFT, CheckpointStore, Scan
from parity.checkpoints.verify import (
    Fault,
    Restored,
    Verified,
    describe,
    read_meta,
    require_leaves,
    require_sealed,
    require_verified,
    verify,
)
from parity.checkpoints.within import RUN, followed, run_of

__all__ = [
    "DESCRIPTION",
    "DRAFT",
    "FILE",
    "FOREIGN",
    "LABEL",
    "LONE",
    "RUN",
    "ByteRange",
    "CheckpointStore",
    "Checkpoints",
    "Fault",
    "Labels",
    "Neutral",
    "Restored",
    "SaveUnderWay",
    "Scan",
    "Seal",
    "Verified",
    "after_save",
    "commit",
    "commit_file",
    "compare",
    "describe",
    "examine",
    "fitting",
    "followed",
    "identities",
    "identity",
    "is_intact",
    "label_of",
    "mode_in",
    "neutral_source",
    "parse_seal",
    "read_meta",
    "read_mode",
    "read_pointer",
    "read_seal",
    "read_seal_beside",
    "require_leaves",
    "require_own",
    "require_sealed",
    "require_verified",
    "run_of",
    "seal_beside",
    "seal_text",
    "sealed_alike",
    "seems_whole",
    "steadily",
    "untouched_since",
    "verify",
    "verify_file",
    "while_it_stays",
]
