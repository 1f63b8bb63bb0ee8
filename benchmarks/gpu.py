"""`make bench-gpu`: the checks and the benchmarks where a GPU is, and the page of their figures.

Without one nothing is measured and the page stays: figures of a CPU under the name of a GPU would be worse than none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import results
from parity import sides
from parity.spec import PRESETS

__all__ = ["PAGE", "commands", "main", "platforms"]

PAGE = Path("docs/results-gpu.md")
CHART = "steps-per-second-gpu.svg"

MEASURED = ("benchmarks/test_throughput.py", "benchmarks/test_speed.py", "benchmarks/test_checkpoints.py")
"""Steps per second, the twins against bare loops, and what a save costs the loop: on a GPU it copies the state to
the host first."""

NONE_HERE = 4
"""Exit code where no side has a GPU: inconclusive."""


def platforms() -> dict[str, str]:
    """Return what each side that is installed would train on: `cpu`, or the name of a device."""
    spec = PRESETS["mlp-digits"]
    return {name: str(sides.load(name).topology(spec)["platform"]) for name in sides.installed()}


def commands(reports: Path) -> list[list[str]]:
    """Return what is run, in this order: the checks (resumes, twins, handovers), then figures."""
    check = [sys.executable, "-m", "parity", "check", "resume", "twins", "handover", "--report", str(reports)]
    bench = [sys.executable, "-m", "pytest", *MEASURED, f"--benchmark-json={reports / 'bench.json'}"]
    return [check, bench]


def main(
    argv: Sequence[str] | None = None,
    found: Callable[[], Mapping[str, str]] = platforms,
    run: Callable[[list[str]], int] = lambda words: subprocess.run(words, check=False).returncode,
) -> int:
    """Measure, and write the page; return 0, or 4 where there is no GPU, or what a command that failed returned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=Path, default=Path("reports/gpu"))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(argv)
    here = found()
    if not any(platform != "cpu" for platform in here.values()):
        seen = ", ".join(f"{side}: {platform}" for side, platform in here.items()) or "no side is installed"
        print(f"bench-gpu: no GPU here ({seen}); nothing was measured, and {options.page} stays", file=sys.stderr)
        return NONE_HERE
    options.reports.mkdir(parents=True, exist_ok=True)
    check, bench = commands(options.reports)
    run(check)  # a check that does not hold stands on the page
    if code := run(bench):
        return code
    written = ["--page", str(options.page), "--chart", CHART, "--command", "make bench-gpu", "--no-readme"]
    return results.main(
        [str(options.reports / "check.json"), "--bench", str(options.reports / "bench.json"), *written]
    )


if __name__ == "__main__":
    sys.exit(main())
