"""`make bench-gpu`: the checks and the benchmarks where a GPU is, and the page of their figures.

Without one nothing is measured and the page stays: figures of a CPU under the name of a GPU would be worse than none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.test_throughput import STEPS
from parity import sides
from parity.environment import usable_cpus
from parity.errors import ResultError
from parity.results import CheckResult, read_result
from parity.spec import PRESETS

__all__ = ["PAGE", "Command", "benchmarks", "checks", "main", "platforms"]

PAGE = Path("docs/results-gpu.md")
CHART = "steps-per-second-gpu.svg"
TITLE = "Results on a GPU"

MATRIX = (
    ("mlp-digits", "float64"),
    ("cnn-digits", "float64"),
    ("gpt-text", "float64"),
    ("mlp-digits", "float16"),
    ("gpt-text", "bfloat16"),
)
"""What is checked: the standard matrix, and the narrow type that GPUs are used with."""

ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""PyTorch, JAX and the processes of a check share one device: JAX takes three quarters of its memory otherwise."""

QUICK = {"PARITY_BENCH_MOST_TIMES": "1", "PARITY_BENCH_LARGEST": "100"}
"""With `--quick`: first rounds alone, and states of up to 100 million parameters."""

CHECKED = {"resume": ("resume",), "across": ("twins", "handover")}
"""Checks that share work, to the end of their directory's name: the others run beside them."""

TIMED: Mapping[str, tuple[str, str, str]] = {
    "twins-jax": ("benchmarks/test_throughput.py", "jax_twin_against_a_bare", "not by_size and not cnn"),
    "twins-torch": ("benchmarks/test_throughput.py", "not jax_twin_against_a_bare", "plain and not cnn"),
    "saves-jax": ("benchmarks/test_checkpoints.py", "jax", "delay_of_the_loop and not 4"),
    "saves-torch": ("benchmarks/test_checkpoints.py", "not jax", "delay_of_the_loop and not 4"),
}
"""File of benchmarks, which of them, and which of these with `--quick`. One command loses what it measured where it
is stopped before its end, so there are several."""

NONE_HERE = 4
"""Exit code where no side has a GPU: inconclusive."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is run, and the result that it writes."""

    words: tuple[str, ...]
    result: Path
    environment: Mapping[str, str]


def platforms() -> dict[str, str]:
    """Return what each side that is installed would train on: `cpu`, or the name of a device."""
    spec = PRESETS["mlp-digits"]
    return {name: str(sides.load(name).topology(spec)["platform"]) for name in sides.installed()}


def checks(reports: Path) -> list[Command]:
    """Return the checks: resumes, twins and handovers of each spec. They may run side by side."""
    made = []
    for end, which in CHECKED.items():
        for spec, precision in MATRIX:
            home = reports / f"{spec}-{precision}-{end}"
            of = ("--spec", spec, "--precision", precision, "--report", str(home))
            words = (sys.executable, "-m", "parity", "check", *which, *of)
            made.append(Command(words=words, result=home / "check.json", environment=ENVIRONMENT))
    return made


def benchmarks(reports: Path, *, quick: bool = False) -> list[Command]:
    """Return the benchmarks, one after the other.

    They are steps per second, the twins against bare loops, and what a save costs the loop: on a GPU it copies the
    state to the host first. Forced CPU devices are left out: they are no GPU's.

    Args:
        reports: Where each writes its result.
        quick: Whether to leave out what takes long.
    """
    chosen = {f"speed-{name}": ("benchmarks/test_speed.py", f"not on_devices and {name}") for name in STEPS}
    for name, (file, which, few) in TIMED.items():
        chosen[name] = (file, f"{which} and {few}" if quick else which)
    made = []
    for name, (file, which) in chosen.items():
        result = reports / f"bench-{name}.json"
        words = (sys.executable, "-m", "pytest", file, "-k", which, f"--benchmark-json={result}")
        environment = {**ENVIRONMENT, **(QUICK if quick else {})}
        made.append(Command(words=words, result=result, environment=environment))
    return made


def start(command: Command) -> int:
    """Run a command and return its exit code."""
    return subprocess.run(command.words, check=False, env={**os.environ, **command.environment}).returncode


def main(
    argv: Sequence[str] | None = None,
    found: Callable[[], Mapping[str, str]] = platforms,
    run: Callable[[Command], int] = start,
) -> int:
    """Measure, and write the page; return 0, or 4 where there is no GPU, or what a command that failed returned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=Path, default=Path("reports/gpu"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--title", default=TITLE, help="of the page, where there is one for each device")
    parser.add_argument("--quick", action="store_true", help="first figures, in about ten minutes")
    parser.add_argument(
        "--page-only", action="store_true", help="write the page of results that are there, from a GPU"
    )
    options = parser.parse_args(argv)
    checked, timed = checks(options.reports), benchmarks(options.reports, quick=options.quick)
    if not options.page_only:
        here = found()
        if not any(platform != "cpu" for platform in here.values()):
            seen = ", ".join(f"{side}: {platform}" for side, platform in here.items()) or "no side is installed"
            print(f"bench-gpu: no GPU here ({seen}); nothing was measured, and {options.page} stays", file=sys.stderr)
            return NONE_HERE
        options.reports.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(max(1, min(len(checked), usable_cpus() // 3))) as beside:
            list(beside.map(run, checked))  # a check that does not hold stands on the page
        for command in timed:
            if code := run(command):
                return code
    else:
        try:
            alone = [path for path in _there(timed) if not _on_gpu(Path(path))]
        except ResultError as error:
            print(f"bench-gpu: error: {error}", file=sys.stderr)
            return 2
        if alone or not (_there(checked) and _there(timed)):
            why = (
                f"measured without a GPU: {', '.join(alone)}"
                if alone
                else f"no checks and figures: {options.reports}"
            )
            print(f"bench-gpu: {why}; {options.page} stays", file=sys.stderr)
            return NONE_HERE
    made_by = f"make bench-gpu{' QUICK=--quick' if options.quick else ''}"
    where = ["--page", str(options.page), "--chart", CHART, "--no-readme"]
    written = [*where, "--command", made_by, "--title", options.title]
    return results.main([*_there(checked), *(f"--bench={path}" for path in _there(timed)), *written])


def _on_gpu(result: Path) -> bool:
    found = read_result(result)
    sides_there = () if isinstance(found, CheckResult) else (found.machine.get("torch"), found.machine.get("jax"))
    return any(not str(one).startswith("cpu") for side in sides_there if side for one in side["devices"])


def _there(commands: Iterable[Command]) -> list[str]:
    return [str(command.result) for command in commands if command.result.exists()]


if __name__ == "__main__":
    sys.exit(main())
