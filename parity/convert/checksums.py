"""The checksums that a format itself has, compared where a seal does not already prove every byte.

An archive of `torch.save` has a CRC-32 for each record, which nothing looks at while arrays are read from the mapped
file: a flipped bit would be written and sealed, and be called whole from then on. A seal that was made after the fact
says what the file held then, so under such a seal the checksums are compared too.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from parity.checkpoints import Fault, Verified
from parity.convert.opening import open_any
from parity.errors import CheckpointError
from parity.formats import Source

__all__ = ["ChecksumsBeside", "with_checksums"]


class ChecksumsBeside:
    """The checksums of a source, compared in a thread beside the conversion that reads the same bytes."""

    def __init__(self, source: Source) -> None:
        """Start to read, if there is anything that reading the arrays does not find by itself."""
        self._source = source
        self._faults: list[tuple[str, str]] = []
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        if source.verify is not None and not source.found_by_reading:
            # A conversion that fails, or is interrupted, does not wait for it.
            self._thread = threading.Thread(target=self._compare, name="checksums", daemon=True)
            self._thread.start()

    def require_none(self) -> None:
        """Wait for the end.

        Raises:
            CheckpointError: A checksum does not fit, or the source cannot be read.
            OSError: It cannot be read.
        """
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        if self._faults:
            name, problem = self._faults[0]
            raise CheckpointError(f"{self._source.path} is damaged: {name} {problem}; nothing was converted")

    def _compare(self) -> None:
        try:
            self._faults = self._source.faults()
        except Exception as error:
            self._failure = error


def with_checksums(found: Verified) -> Verified:
    """Return what verifying a checkpoint found, with the faults that its format knows of under a foreign seal.

    Args:
        found: A comparison with the seal; one that is damaged, or was sealed as it was saved, is returned as it is.
    """
    if found.seal is None or not found.whole or not found.seal.foreign:
        return found
    try:
        faults = open_any(found.path).faults()
    except (CheckpointError, OSError) as error:
        faults = [(found.path.name, str(error))]
    sealed = [Fault(file=name, problem=f"{what}: it was sealed damaged") for name, what in faults]
    return replace(found, faults=tuple(sealed))
