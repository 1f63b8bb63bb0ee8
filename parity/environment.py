"""The environment of a result: versions, processors, platform and commit, without importing any framework."""

from __future__ import annotations

import functools
import glob
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import xxhash

__all__ = [
    "THREAD_SETTINGS",
    "code_digest",
    "compare_environments",
    "describe_environment",
    "describe_machine",
    "has_accelerator",
    "usable_cpus",
    "versions",
]

DISTRIBUTIONS = (
    "numpy",
    "grain",
    "scikit-learn",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "torch",
)

SURROUNDINGS = ("python", "platform", "machine", "cpus", "versions", "devices", "data")
"""What a verdict may depend on besides the spec and the commit."""


@functools.cache
def versions(names: tuple[str, ...] = DISTRIBUTIONS) -> Mapping[str, str]:
    """Return distribution to version, of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return MappingProxyType(found)


def code_digest(*packages: str) -> str:
    """Return the XXH3-128 of the sources of packages: their names below the package, and their bytes.

    Args:
        packages: Names of packages that are imported; one without a file counts by its name alone.
    """
    digest = xxhash.xxh3_128()
    for package in packages:
        digest.update(package.encode())
        if file := getattr(sys.modules.get(package), "__file__", None):
            folder = Path(file).parent
            for source in sorted(folder.rglob("*.py")):
                digest.update(str(source.relative_to(folder)).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def usable_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


ACCELERATORS = ("/dev/nvidia*", "/dev/kfd", "/dev/dxg", "/dev/accel*", "/dev/vfio/*", "/proc/driver/nvidia/gpus/*")
"""Files of NVIDIA's and AMD's devices, Windows's for Linux, and TPUs."""


def has_accelerator() -> bool:
    """Return whether this machine may have an accelerator, told without starting any driver."""
    return sys.platform != "linux" or any(glob.glob(pattern) for pattern in ACCELERATORS)


def describe_environment() -> dict[str, Any]:
    """Return versions, machine, commit and time: what a result depends on besides its spec, and when it was made."""
    commit = _git("rev-parse", "HEAD") or None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": usable_cpus(),
        "versions": dict(versions()),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": versions(("parity-suite",)).get("parity-suite", ""),
        "commit": commit,
        "dirty": bool(commit and _git("status", "--porcelain", "--untracked-files=no")),
    }


THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS", "GLIBC_TUNABLES")
"""Environment variables that change the number of threads, what XLA compiles, the size of pages."""


def describe_machine() -> dict[str, Any]:
    """Return what a time depends on, by the names of pytest-benchmark: processor, Python, versions, threads."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "release": platform.release(),
        "python_implementation": platform.python_implementation(),
        "python_version": platform.python_version(),
        "cpu": {"brand_raw": _processor(), "count": os.cpu_count()},
        "versions": dict(versions()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "usable_cpus": usable_cpus(),
        "thread_settings": {name: os.environ[name] for name in THREAD_SETTINGS if name in os.environ},
    }


def compare_environments(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    names: Iterable[str] = SURROUNDINGS,
    what: str = "environments",
) -> list[str]:
    """Return one sentence for each value in which two environments differ.

    Args:
        old: Environment of the earlier result.
        new: Environment of the later one.
        names: Dotted names of the values to compare; of a table, every entry is compared.
        what: How the sentences call the two.

    Example:
        >>> compare_environments({"cpus": 2, "versions": {"jax": "0.10"}}, {"cpus": 2, "versions": {}})
        ['the environments differ: versions.jax was 0.10, is nothing']
    """
    out = []
    for name in names:
        a, b = _value(old, name), _value(new, name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            pairs = [(f"{name}.{key}", a.get(key), b.get(key)) for key in sorted({*a, *b})]
        else:
            pairs = [(name, a, b)]
        out += [f"the {what} differ: {n} was {_shown(x)}, is {_shown(y)}" for n, x, y in pairs if x != y]
    return out


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _shown(value: Any) -> str:
    return ("nothing" if value is None else str(value))[:100]


def _processor() -> str:
    """Return the name of the processor, as Linux has it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _git(*words: str) -> str:
    """Return what git prints about the source tree of this package; nothing for an installed package."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        found = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()
