"""The conversion of `parity convert` between the folders of two trainers."""

from __future__ import annotations

import time
from pathlib import Path

from parity.checks.ports.handover import Convert
from parity.convert import Options, convert, writer_of
from parity.errors import CheckpointError

__all__ = ["conversion"]


def conversion(
    checkpoint: str, place: str, to: str, options: Options | None = None, like: Path | None = None
) -> Convert:
    """Return what takes a checkpoint from one folder to the other, as `parity convert` does.

    Args:
        checkpoint: Where it lies in the folder of the trainer that saved it.
        place: Where the other looks for its own in its folder.
        to: Format of what is written.
        options: What was asked for of the conversion, such as its rules; None where the names are the same.
        like: As of `parity.convert.convert`.

    Raises:
        CheckpointError: There is no writer of the format.
    """
    writer = writer_of(to)
    asked = options or Options()

    def carry(source: Path, target: Path) -> None:
        made = target / place
        made.parent.mkdir(parents=True, exist_ok=True)
        ledger = convert(source / checkpoint, made, writer, asked, like=like, now=time.time())
        if ledger.refused or not ledger.crossed:
            refused = ledger.of("refused")
            why = f"{refused[0].leaf}: {refused[0].how}" if refused else "it holds nothing"
            raise CheckpointError(f"{checkpoint} is not converted: {why}")

    return carry
