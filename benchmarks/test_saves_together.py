"""Saves of one sharded state by two processes, sealed and durable, against DCP, Orbax and torch_checkpointing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.paired import run_paired, slower
from benchmarks.saves_together import SIDES, peers
from benchmarks.worker import Worker
from parity import sides

MOST = 1.1
"""Time of a save over that of the peer's."""
KINDS = {"": True, "-begun": True, "-kept": False}
"""Ends of the names of arms, to whether there is a bar: what a manager begins is written when nothing else runs, by
design, so there is none for when that is done."""


@pytest.mark.parametrize("width", [512, *(pytest.param(width, marks=pytest.mark.slow) for width in (2048, 4096))])
@pytest.mark.parametrize("side", SIDES)
def test_a_save_of_two_processes_against_that_of_the_library(
    benchmark: Any, side: str, width: int, tmp_path: Path
) -> None:
    """Until durable, and until the call returns; 6 matrices of float32, 6, 101 or 403 MB in all."""
    if side not in sides.installed():
        pytest.skip(f"{side} is not installed")
    with Worker("benchmarks.saves_together:arms", processes=2, side=side, home=str(tmp_path), width=width) as worker:
        others = peers(side)
        arms = [worker.arm(f"{name}{kind}", f"{name}{kind}") for kind in KINDS for name in ("parity", *others)]
        large = width > 1000  # below, files and messages cost more than bytes do
        ratios = [
            slower(f"parity{kind}", f"{other}{kind}", MOST if large and barred else None)
            for other in others
            for kind, barred in KINDS.items()
        ]
        measured = run_paired(benchmark, arms, ratios, rounds=7)
        if measured.enabled:
            measured.note("parity", peer=SIDES[side], peers=list(others.values()), processes=2)
