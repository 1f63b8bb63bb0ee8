"""Files that survive crashes and may come from anyone.

Atomic writes, digests, bounded reads, a strict decoder, JSON lines, the writer lock and background writing. Knows
nothing of training.
"""

from parity.storage.atomic import (
    REMOVED,
    drafted,
    fsync_directory,
    fsync_files,
    fsync_tree,
    make_directory,
    move,
    named,
    reason,
    remove_tree,
    replace_file,
    require_writable,
    write_file,
)
from parity.storage.background import SMALL, Background, Priority
from parity.storage.decode import (
    Decoder,
    FieldReader,
    Misfit,
    MissingField,
    UnknownField,
    UnknownWord,
    pick_class,
    shown,
)
from parity.storage.digests import (
    ALGORITHM,
    BLOCK,
    DigestWriter,
    FileDigest,
    digest_bytes,
    digest_files,
    digest_range,
    join_blocks,
    list_files,
)
from parity.storage.jsonl import append, plain, read_lines, repair
from parity.storage.local import local_path
from parity.storage.lock import WriterLock
from parity.storage.parallel_read import ParallelReader, read_ranges
from parity.storage.untrusted import (
    MAX_BYTES,
    open_regular,
    parse_json,
    read_bytes,
    read_given,
    read_json,
)
from parity.storage.write_back import WRITE_BYTES, WriteBack

__all__ = [
    "ALGORITHM",
    "BLOCK",
    "MAX_BYTES",
    "REMOVED",
    "SMALL",
    "WRITE_BYTES",
    "Background",
    "Decoder",
    "DigestWriter",
    "FieldReader",
    "FileDigest",
    "Misfit",
    "MissingField",
    "ParallelReader",
    "Priority",
    "UnknownField",
    "UnknownWord",
    "WriteBack",
    "WriterLock",
    "append",
    "digest_bytes",
    "digest_files",
    "digest_range",
    "drafted",
    "fsync_directory",
    "fsync_files",
    "fsync_tree",
    "join_blocks",
    "list_files",
    "local_path",
    "make_directory",
    "move",
    "named",
    "open_regular",
    "parse_json",
    "pick_class",
    "plain",
    "read_bytes",
    "read_given",
    "read_json",
    "read_lines",
    "read_ranges",
    "reason",
    "remove_tree",
    "repair",
    "replace_file",
    "require_writable",
    "shown",
    "write_file",
]
