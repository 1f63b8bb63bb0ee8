"""Record a real save below Python, and check that the record says everything that happened."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.crash.calls import TraceError
from tests.crash.disk import Tree, replay, tree_on_disk
from tests.crash.operations import Operations
from tests.crash.reader import TRACED, parse
from tests.crash.workload import READY, REPLACED

__all__ = ["Recording", "explain", "record", "traced"]


@dataclass(frozen=True)
class Recording:
    """What one side does while it saves twice."""

    side: str
    operations: Operations
    old: Tree
    """The run directory before the second save."""
    new: Tree
    """After it, with the first checkpoint gone."""
    leaves: dict[int, dict[str, str]]
    """Step to the digest of every leaf of the live state at that step."""


@functools.cache
def record(side: str) -> Recording:
    """Run the workload under strace.

    Raises:
        TraceError: strace is missing or not permitted, or the trace does not explain what lies on the disk.
    """
    home = Path(os.path.realpath(tempfile.mkdtemp(prefix="parity-crash-")))
    try:
        return _record(side, home)
    finally:
        shutil.rmtree(home)


def traced(command: list[str], run: Path, trace: Path) -> Operations:
    """Run a command under strace, and return what it did to a directory that does not exist yet.

    Raises:
        TraceError: strace is missing or not permitted, the command failed, or it did something without a model.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise TraceError("strace is not installed: the file operations of a save cannot be recorded")
    options = ["-f", "-y", "-xx", "--seccomp-bpf", "--string-limit=1000000000", f"--output={trace}"]
    calls = "--trace=" + ",".join(f"?{name}" for name in TRACED)  # not every architecture has every call
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [strace, *options, calls, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=300,
        cwd=root,
    )
    if done.returncode:
        denied = re.search(r"ptrace|Operation not permitted", done.stderr)
        hint = "; strace needs the permission to trace its own children (ptrace)" if denied else ""
        raise TraceError(f"failed under strace{hint}: {done.stderr[-2000:]}")
    with trace.open() as lines:
        return parse(lines, str(run))


def _record(side: str, home: Path) -> Recording:
    run = home / "run"
    workload = str(Path(__file__).with_name("workload.py"))
    operations = traced([sys.executable, workload, side, str(run)], run, home / "trace")
    leaves = json.loads((home / "leaves.json").read_text())
    found = Recording(
        side=side,
        operations=operations,
        old=tree_on_disk(home / "old"),
        new=tree_on_disk(run),
        leaves={int(step): digests for step, digests in leaves.items()},
    )
    explain(operations, operations.mark(READY), found.old)
    explain(operations, operations.mark(REPLACED), found.new)
    return found


def explain(operations: Operations, count: int, tree: Tree) -> None:
    """Check that replaying operations gives what lay on the disk.

    Raises:
        TraceError: It does not: something went unseen, or was misunderstood.
    """
    made = replay(operations, count)
    if made != tree:
        differing = sorted({path for path, _ in made.items() ^ tree.items()})
        raise TraceError(f"the trace does not explain what lies on the disk: {', '.join(differing[:10])}")
