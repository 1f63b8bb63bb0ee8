"""A version of Orbax that lacks what is asked of it is one error, before anything is saved."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from orbax import checkpoint as ocp

from jax_side.formats.needed import NEEDED, TESTED, check_orbax
from parity.errors import CheckpointError

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import orbax.checkpoint as ocp
del ocp.path.step.standard_name_format
import numpy as np
import jax_side
jax_side.save("saved", {"w": np.ones(3)})
"""


def test_this_version_has_all() -> None:
    check_orbax()


def test_what_is_lacking_is_named_with_the_versions_that_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ocp.path.atomicity, "AtomicRenameTemporaryPath")
    monkeypatch.delattr(ocp, "PLACEHOLDER")
    lost = "path.atomicity.AtomicRenameTemporaryPath.finalize, path.atomicity.AtomicRenameTemporaryPath.get_final"
    message = (
        rf"^orbax-checkpoint \d+\.\d+\.\d+ lacks {lost}, PLACEHOLDER; {re.escape(TESTED)} are tested: pip install"
    )
    with pytest.raises(CheckpointError, match=message):
        check_orbax()


def test_a_save_stops_there(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("parity.errors.CheckpointError: orbax-checkpoint")
    assert "lacks path.step.standard_name_format;" in last
    assert not (tmp_path / "saved").exists()


def test_the_versions_are_those_that_may_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = [one for one in extras["jax"] if one.startswith("orbax-checkpoint")]
    least, most = re.fullmatch(r"orbax-checkpoint>=([\d.]+),<=([\d.]+)", wanted).groups()  # type: ignore[union-attr]
    assert f"{least} to {most}" == TESTED
    assert f"orbax-checkpoint=={most}\n" in (ROOT / "constraints.txt").read_text()


def test_no_attribute_of_orbax_is_private() -> None:
    """Of the names, and of the sources: what begins with an underscore may go without a word."""
    assert not [name for name in NEEDED if any(part.startswith("_") for part in name.split("."))]
    sources = "\n".join(path.read_text() for path in (ROOT / "jax_side").rglob("*.py"))
    assert not re.findall(r"\bocp(?:\.\w+)*\._\w+", sources)
    assert not re.findall(r"^\s*(?:from|import) (?:orbax|tensorstore)\S*\._\S*", sources, re.MULTILINE)
