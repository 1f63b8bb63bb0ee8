"""An export onto a failing disk leaves nothing behind under any name, and says why in one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parity import cli
from parity.checkpoints import verify
from parity.spec import to_toml
from tests.storage.disk import FAULTS, REASONS, environment
from tests.support.saving import SPECS
from tests.support.sealed import flip

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
        hidden = all(name[0] == "." and name.endswith(".taken") for name in left)  # nothing can be removed there
        assert left in ([], ["taken"]) or (hidden and FAULTS[fault].persistent), f"operation {n}: {done.stderr}"
        line, *files = done.stderr.splitlines()
        assert line.startswith("parity: error: "), line
        assert len(files) <= 1, "one file was damaged"
        told_why = " ".join([line, *files])
        assert any(reason in told_why for reason in (*REASONS.values(), "has no seal")), told_why
        assert "taken" in told_why
        assert len(told_why) < 400
    assert told >= 2


def test_a_copy_that_is_not_what_was_sealed_is_not_shipped(run, tmp_path, monkeypatch, capsys):
    def copied_badly(source, draft):
        real(source, draft)
        flip(draft / "state.pt", 1000)

    real = shutil.copytree
    monkeypatch.setattr(shutil, "copytree", copied_badly)
    assert cli.main(["export", str(run), "latest", str(tmp_path / "taken")]) == 2
    assert "state.pt: does not hold the bytes that were sealed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert cli.main(["export", str(run), "latest", str(tmp_path / "taken")]) == 0
    assert verify(tmp_path / "taken").whole


def test_a_file_that_cannot_be_read_is_named_with_its_copy(run, tmp_path):
    """Whichever of the two disks failed, both files are named."""
    for n in range(1, 30):  # the first are reads of the verification
        env = environment(FAULTS["unreadable-once"], run, part="meta.json", n=n)
        said = parity("export", run, "latest", tmp_path / str(n), env=env).stderr
        if "could not be copied to" in said:
            break
    file, copy = said.removeprefix("parity: error: ").split(" could not be copied to ")
    assert file == f"{run}/checkpoints/2/meta.json"
    assert copy.startswith(f"{tmp_path}/.")
    assert copy.endswith("/meta.json: [Errno 5] Input/output error\n")
