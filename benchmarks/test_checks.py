"""Time to the verdict of `parity check resume`, and where it goes; recorded, not judged: it is a time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.paired import Arm, run_paired, slower
from parity import sides

WANTED_SECONDS = 20.0
"""What one side should stay under with a warm cache of files."""

ROUNDS = 3
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_time_to_verdict(benchmark: Any, side: str, tmp_path: Path) -> None:
    """The whole command, and one of its four training processes, phase by phase.

    Three of them follow each other (killed, killed, to the end) while the uninterrupted one runs beside them, so a
    check takes some three times a process, and the two share the CPUs.
    """
    if side not in sides.installed():
        pytest.skip(f"{side} is not installed")
    phases: list[dict[str, float]] = []
    arms = [
        Arm(name="check", run=lambda: check(side, tmp_path)),
        Arm(name="process", run=lambda: phases.append(process(side))),
    ]
    measured = run_paired(benchmark, arms, [slower("check", "process")], rounds=ROUNDS)
    timed = phases[1:]  # the first is the warm-up
    parts = {name: median(p[name] for p in timed) for name in timed[0]}
    measured.note("process", parts=parts, side=side)
    own = {"judging": judging(tmp_path / "runs")}
    measured.note("check", wanted_seconds=WANTED_SECONDS, side=side, parts=own)


def check(side: str, report: Path) -> None:
    """Run the command in a process of its own; a verdict other than `holds` fails."""
    command = [sys.executable, "-m", "parity", "check", "resume", "--spec", "mlp-digits", "--sides", side]
    subprocess.run([*command, "--report", str(report)], check=True, capture_output=True)


def process(side: str) -> dict[str, float]:
    """Return phase to seconds of one training process."""
    command = [sys.executable, "-m", "benchmarks.check_parts", side, str(time.monotonic())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def judging(runs: Path) -> float:
    """Return the seconds that reading and judging the evidence of a finished check takes."""
    from parity.reference.planned import judge, read_evidence

    (reference,), (resumed,) = (list(runs.rglob(name)) for name in ("reference", "resumed"))
    began = time.perf_counter()
    one, other = read_evidence(reference), read_evidence(resumed)
    findings = judge(one, other, [row["resumed_from"] for row in attempts(resumed)])
    assert not findings.broken
    return time.perf_counter() - began


def attempts(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "attempts.jsonl").read_text().splitlines()]
