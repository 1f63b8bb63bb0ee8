"""`parity inspect` of checkpoints with 100,000 tensors: what each tensor costs where no array is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bars import INSPECT_SECONDS
from benchmarks.paired import Arm, Versus, run_paired
from benchmarks.test_conversion import writer
from parity.formats import SAFETENSORS, InMemory

pytestmark = pytest.mark.slow

TENSORS = 100_000


def test_inspect_of_many_tensors(benchmark: Any, tmp_path: Path) -> None:
    """Each time in a new process, imports included; modules are compiled before, as those of a package are."""
    rows = np.random.default_rng(0).standard_normal((TENSORS, 4, 8), np.float32)
    tree = {f"layers.{n}.weight": InMemory(row) for n, row in enumerate(rows)}
    made = {"safetensors": SAFETENSORS, "torch.save": writer("torch.save"), "orbax": writer("orbax")}
    for name, one in made.items():
        one.write(tree, tmp_path / name)
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def inspect(name: str) -> None:
        words = [sys.executable, "-m", "parity", "inspect", str(tmp_path / name)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)

    arms = [Arm(name=name, run=lambda name=name: inspect(name)) for name in made]
    ratios = [
        Versus(
            name=name, of=f"seconds of {name}", take=lambda s, name=name: s[name], better="lower", bar=INSPECT_SECONDS
        )
        for name in made
    ]
    run_paired(benchmark, arms, ratios, rounds=5)
