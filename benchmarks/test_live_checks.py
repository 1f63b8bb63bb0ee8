"""The resume check of somebody's training function against the same runs without the check, in new processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paired import Arm, Seconds, run_paired, slower
from parity import sides

pytestmark = pytest.mark.slow

SECONDS = {"inline": 5.0, "process": 15.0}
"""What the check of a small trainer may take along the quick scenarios, with all imports."""

MOST = 1.25
"""What it may take of the bare runs, where these take nearly as long by themselves."""

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"

STEPS, STOP, THIRD = 60, 35, 47

RUNS = ((0, STEPS), (0, STOP), (STOP, STEPS), (STOP, STOP), (STOP, STEPS), (STOP, THIRD), (THIRD, STEPS))
"""First and last step of the runs that a check makes: two equal ones, and the scenarios kill, again and third."""

CHECK = f"""
import sys
if __name__ == "__main__":
    import parity
    from loop_{{name}} import train
    found = parity.resumes(train, steps={STEPS}, stop_at={STOP}, mode="{{mode}}")
    sys.exit(f"{{{{found.verdict}}}}" if found.verdict != "holds" else 0)
"""

BARE = """
import shutil, sys, tempfile
from pathlib import Path
from loop_{name} import train
left, *runs = sys.argv[1:]
for run in runs:
    first, last = map(int, run.split("-"))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run"
        shutil.copytree(Path(left) / str(first), folder)
        for step in train(folder):
            if step == last:
                break
        if not first and not (Path(left) / str(last)).exists():
            shutil.copytree(folder, Path(left) / str(last))
"""


@pytest.mark.parametrize("name", ["torch", "nnx"])
@pytest.mark.parametrize("mode", SECONDS)
def test_check_against_bare_runs(benchmark: Any, mode: str, name: str, tmp_path: Path) -> None:
    """A verdict other than `holds` fails; the bare runs beside `process` are processes, two at a time."""
    if {"torch": "torch", "nnx": "jax"}[name] not in sides.installed():
        pytest.skip(f"{name} is not installed")
    script, bare, left = tmp_path / "check.py", tmp_path / "bare.py", tmp_path / "left"
    script.write_text(CHECK.format(name=name, mode=mode))
    bare.write_text(BARE.format(name=name))
    (left / "0").mkdir(parents=True)
    for stop in (STOP, THIRD):
        python(bare, left, [(0, stop)])
    arms = [
        Arm(name="check", run=lambda: python(script)),
        Arm(name="bare runs", run=lambda: run_bare(bare, left, mode)),
    ]

    def bar(medians: Seconds) -> float:
        return max(SECONDS[mode] / medians["bare runs"], MOST)

    run_paired(benchmark, arms, [slower("check", "bare runs", bar=bar)], rounds=5, label=f"{mode} {name}")


def run_bare(script: Path, left: Path, mode: str) -> None:
    """Make the runs of a check, in one process or in as many."""
    if mode == "inline":
        python(script, left, RUNS)
        return
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: python(script, left, [run]), RUNS))


def python(script: Path, left: Path | None = None, runs: Sequence[tuple[int, int]] = ()) -> None:
    """Run a script in a process of its own; what it prints is shown if it fails."""
    words = [] if left is None else [str(left), *(f"{first}-{last}" for first, last in runs)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *filter(None, sys.path)])}
    with tempfile.TemporaryFile("w+") as printed:
        done = subprocess.run([sys.executable, str(script), *words], env=environment, stdout=printed, stderr=printed)
        printed.seek(0)
        assert done.returncode == 0, printed.read()
