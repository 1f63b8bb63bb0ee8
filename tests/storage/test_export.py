"""An export onto a failing disk leaves nothing behind under any name, and says why in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from parity.specfile import to_toml
from parity.verify import verify
from tests.parity.saving import SPECS
from tests.storage.disk import FAULTS, REASONS, environment

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


OPERATIONS = {
    "full": [0, 1, 2, 3, 8, 13],
    "read-only": [0, 1, 3, 13],
    "failing-once": [0, 1, 2, 3, 5, 13],
    "unreadable-once": [0, *range(12, 26)],
}
"""By fault, those that fail, 0 for none; the first that are looked at are of names that may be missing."""


def parity(*words, env=None):
    """Run the command."""
    command = [sys.executable, "-m", "parity", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run with a checkpoint."""
    home = tmp_path_factory.mktemp("run")
    (home / "spec.toml").write_text(to_toml(SPECS["adam"]))
    done = parity("train", "--side", "torch", "--spec", home / "spec.toml", "--dir", home / "run", "--steps", 2)
    assert done.returncode == 0, done.stderr
    return home / "run"


def export(run, home, fault, n):
    """Export onto a disk whose n-th operation fails, none for 0."""
    home.mkdir()
    return parity("export", run, "latest", home / "taken", env=environment(FAULTS[fault], home, n=n))


@pytest.mark.parametrize("fault", ["full", "read-only", "failing-once", "unreadable-once"])
def test_whatever_fails_in_an_export_it_is_whole_or_not_there(fault, run, tmp_path):
    told = 0
    for n in OPERATIONS[fault]:
        home = tmp_path / str(n)
        done = export(run, home, fault, n)
        left = [entry.name for entry in home.iterdir()]
        if left == ["taken"]:  # what fails behind the rename is told all the same
            assert verify(home / "taken").whole
        if done.returncode == 0:
            assert left == ["taken"]
            continue
        told += 1
        assert n > 0
        hidden = all(name.startswith(".taken.") for name in left)  # nothing can be removed from such a disk
        assert left in ([], ["taken"]) or (hidden and FAULTS[fault].persistent), f"operation {n}: {done.stderr}"
        line, *files = done.stderr.splitlines()
        assert line.startswith("parity: error: "), line
        assert len(files) <= 1, "one file was damaged"
        told_why = " ".join([line, *files])
        assert any(reason in told_why for reason in (*REASONS.values(), "has no seal")), told_why
        assert "taken" in told_why
        assert len(told_why) < 400
    assert told >= 2
