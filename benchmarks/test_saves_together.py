"""Saves of one sharded state by two processes, sealed and durable, against plain DCP and plain Orbax of the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.paired import run_paired, slower
from benchmarks.saves_together import SIDES
from benchmarks.worker import Worker
from parity import sides

MOST = 1.1
"""Time of a save over that of the peer's."""


@pytest.mark.parametrize("width", [512, *(pytest.param(width, marks=pytest.mark.slow) for width in (2048, 4096))])
@pytest.mark.parametrize("side", SIDES)
def test_a_save_of_two_processes_against_that_of_the_library(
    benchmark: Any, side: str, width: int, tmp_path: Path
) -> None:
    """Until durable, and until the call returns; 6 matrices of float32, 6, 101 or 403 MB in all."""
    if side not in sides.installed():
        pytest.skip(f"{side} is not installed")
    with Worker("benchmarks.saves_together:arms", processes=2, side=side, home=str(tmp_path), width=width) as worker:
        pairs = [(f"parity{kind}", f"peer{kind}") for kind in ("", "-begun", "-kept")]
        arms = [worker.arm(name, name) for pair in pairs for name in pair]
        large = width > 1000  # below, files and messages cost more than bytes do
        # What a manager begins is written when nothing else runs, by design: no bar for when that is done.
        bars = [MOST if large else None, MOST if large else None, None]
        ratios = [slower(*pair, bar) for pair, bar in zip(pairs, bars, strict=True)]
        measured = run_paired(benchmark, arms, ratios, rounds=7)
        if measured.enabled:
            measured.note("parity", peer=SIDES[side], processes=2)
