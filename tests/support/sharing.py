"""What takes long to make and is only read by tests: made once in a session, whichever of its workers asks first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["made_once"]


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that all workers of a session share; the first that asks fills it while the others wait.

    Args:
        factory: Of the session's folders.
        name: Of the folder, one of its own for each thing that is made.
        make: Fills the folder; where it fails, it fails for all that ask.
    """
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, failed = base / name, base / f"{name}.failed"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failed.exists():
            pytest.fail(f"{name} could not be made, by the first test that asked: {failed.read_text()}")
        if not folder.exists():
            folder.mkdir()
            try:
                make(folder)
            except BaseException as error:
                failed.write_text(repr(error))
                raise
    return folder
