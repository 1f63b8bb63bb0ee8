"""Where a checkpoint lies: in a run or a manager of ours, in a folder of another tool, or behind a link."""

from __future__ import annotations

import os
from pathlib import Path

from parity.checkpoints.seal import FILE

__all__ = ["RUN", "followed", "run_of"]

RUN = ("spec.toml", "steps.jsonl", "latest.json")
"""Files that lie beside `checkpoints/` in the directory of a run or of a manager of ours."""


def run_of(path: Path) -> Path | None:
    """Return the directory of the run or the manager of ours that a checkpoint lies in; None if in neither.

    Other tools call a directory of steps `checkpoints` too: what lies beside it tells. Of a link, both its own place
    and what it leads to count.
    """
    return _run_above(Path(os.path.realpath(path))) or _run_above(_place(path))


def followed(path: Path) -> Path:
    """Return the sealed directory that a link leads to, as one called `latest` does; any other path as it is.

    A link that lies among the checkpoints of a run is none of them, and stays.
    """
    if not path.is_symlink() or not os.path.lexists(path / FILE) or _run_above(_place(path)) is not None:
        return path
    return Path(os.path.realpath(path))


def _place(path: Path) -> Path:
    """Return a path whose last part alone may be a link; `Path.resolve` raises for links that lead in a circle."""
    return Path(os.path.realpath(path.parent), path.name)


def _run_above(path: Path) -> Path | None:
    home = path.parent
    ours = home.name == "checkpoints" and any(os.path.lexists(home.parent / name) for name in RUN)
    return home.parent if ours else None
