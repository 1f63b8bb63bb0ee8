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


@pytest.mark.parametrize("width", [512, pytest.param(2048, marks=pytest.mark.slow)])
@pytest.mark.parametrize("side", SIDES)
def test_a_save_of_two_processes_against_that_of_the_library(
    benchmark: Any, side: str, width: int, tmp_path: Path
) -> None:
    """Until durable, and until the call returns; 6 matrices of float32, 25 MB or 101 MB in all."""
    if side not in sides.installed():
        pytest.skip(f"{side} is not installed")
    with Worker("benchmarks.saves_together:arms", processes=2, side=side, home=str(tmp_path), width=width) as worker:
        names = ("parity", "peer", "parity-begun", "peer-begun")
        arms = [worker.arm(name, name) for name in names]
        large = width > 1000  # below, files and messages cost more than bytes do
        ratios = [slower(*names[:2], MOST if large else None), slower(*names[2:], MOST if large else None)]
        measured = run_paired(benchmark, arms, ratios, rounds=7)
        if measured.enabled:
            measured.note("parity", peer=SIDES[side], processes=2)
