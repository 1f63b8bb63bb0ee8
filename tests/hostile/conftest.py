"""Good runs, trained once per process and only ever copied, on a file system in memory where there is one."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.hostile.runs import SPEC, TINY, Sandbox, make_run, sandbox


@pytest.fixture(scope="session")
def memory():
    """Return a folder in memory: thousands of changed bytes are read back at once."""
    home = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="hostile-", dir=home if os.access(home, os.W_OK) else None))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def good(memory):
    """Return a function from a side's name, and whether the tiny spec will do, to its good run."""
    made: dict[tuple[str, bool], Path] = {}

    def get(side: str, tiny: bool = False) -> Path:
        if (side, tiny) not in made:
            path = memory / f"good-{side}-{'tiny' if tiny else 'small'}"
            made[side, tiny] = make_run(side, path, TINY if tiny else SPEC)
        return made[side, tiny]

    return get


@pytest.fixture
def box(good, memory):
    """Return a function from a side's name to a fresh copy of its run."""
    roots: list[Path] = []

    def make(side: str, tiny: bool = False) -> Sandbox:
        roots.append(Path(tempfile.mkdtemp(dir=memory)))
        return sandbox(good(side, tiny), roots[-1])

    yield make
    for root in roots:
        shutil.rmtree(root)
