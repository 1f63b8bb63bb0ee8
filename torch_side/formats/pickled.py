"""The pickle inside a `torch.save` file, read opcode by opcode before PyTorch unpickles it.

`weights_only=True` keeps code from running, but not a few bytes from asking for gigabytes (`bytearray(1 << 33)` is
on its list), nor tensors from claiming odd classes. A training state needs a few names and three dozen opcodes:
nothing else is let through. The walk builds no object and needs no memory.

Source: `pickletools.genops`; `torch/_weights_only_unpickler.py`, PyTorch 2.13.
"""

from __future__ import annotations

import pickletools
import re
from pathlib import Path

from parity.errors import CheckpointError

__all__ = ["GLOBALS", "TREE_GLOBALS", "require_plain_pickle"]

GLOBALS = re.compile(
    r"torch\._utils _rebuild_tensor_v2|collections OrderedDict"
    r"|torch (Float|Double|Half|BFloat16|Long|Int|Short|Char|Byte|Bool)Storage"
)
TREE_GLOBALS = re.compile(
    GLOBALS.pattern
    + r"|torch\._utils _rebuild_tensor_v3|torch\.storage UntypedStorage|__builtin__ complex"
    + r"|torch (Complex(Float|Double)Storage|uint(16|32|64)|float8_(e4m3fn|e5m2|e4m3fnuz|e5m2fnuz|e8m0fnu))"
)
"""Names that the pickle of any tree may have besides: tensors of newer types, and complex numbers."""

OPCODES = {
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "GLOBAL", "REDUCE", "BINPERSID", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND"),
    *("APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "BINPUT", "LONG_BINPUT", "BINGET"),
    "LONG_BINGET",
}
BASE_BYTES = 1 << 20
BYTES_PER_RECORD = 4096
"""Longest pickle: this much, and so much for each tensor; a real one takes a few hundred bytes for each."""


def require_plain_pickle(path: Path, data: bytes, records: int, names: re.Pattern[str] = GLOBALS) -> None:
    """Check that a pickle holds only what a training state of ours is made of.

    Args:
        path: The file it is from, for messages.
        data: `data.pkl`.
        records: Records of the archive.
        names: The names that it may ask for.

    Raises:
        CheckpointError: An opcode or a name is none of these, or it is longer than such a state can be.
    """
    most = BASE_BYTES + BYTES_PER_RECORD * records
    if len(data) > most:
        raise CheckpointError(f"{path}: data.pkl has {len(data)} bytes, more than {most} for {records} records")
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in OPCODES:
                raise CheckpointError(f"{path}: data.pkl uses {opcode.name}, which no training state needs")
            if opcode.name == "GLOBAL" and not names.fullmatch(str(argument)):
                raise CheckpointError(
                    f"{path}: data.pkl asks for {str(argument)[:80]!r}, which no training state needs"
                )
    except CheckpointError:
        raise
    except Exception as error:  # genops raises ValueError, IndexError and UnicodeDecodeError for a broken stream
        raise CheckpointError(f"{path}: data.pkl is no pickle: {error}") from error
