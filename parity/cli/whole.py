"""The line of a checkpoint that is what its seal says, wherever it lies."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from parity.checkpoints import Seal
from parity.storage import plain

__all__ = ["print_whole"]


def print_whole(console: Console, name: str, seal: Seal, *, step: int, metric: float | None) -> None:
    """Print that a checkpoint is whole, and what its seal tells of it: of another tool's, files alone.

    Args:
        console: Where it is printed.
        name: Its path or URL.
        seal: Its seal.
        step: The step that its run has it under.
        metric: The metric that its run has it under, or None.
    """
    size = sum(file.size for file in seal.files.values())
    files = f"{len(seal.files)} file{'s' if len(seal.files) > 1 else ''}, {size:,} bytes"
    if seal.foreign:  # neither its step nor its leaves were known to who sealed it
        what = f"{files}, as sealed"
    else:
        known = "" if metric is None else f", metric {plain(metric)}"
        what = f"step {step}{known}, {files}, {len(seal.leaves)} leaves"
    console.print(Text.assemble(("whole", "green"), f"      {name}: {what}"), soft_wrap=True)
