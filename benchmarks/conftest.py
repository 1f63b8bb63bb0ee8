"""The machine in the JSON of pytest-benchmark: besides its own fields, frameworks, devices and threads."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
from pytest_benchmark.logger import PytestBenchmarkWarning

from parity import sides
from parity.environment import THREAD_SETTINGS, usable_cpus, versions

OTHERS = ("lightning", "transformers", "accelerate", "safetensors")
"""What else the twins are compared with."""

AT_START = pytest.StashKey[dict[str, Any]]()


def pytest_configure(config: pytest.Config) -> None:
    """Note what trainers change in this process; a warning of a library is shown, and is no error as in the tests.

    Benchmarks run with versions and on devices that the tests have not seen (compiling for a GPU warns of rounding
    that nobody asked for), and pytest-benchmark itself warns of a fixture that a failed test did not use, which as an
    error hid why it had failed.
    """
    config.addinivalue_line("filterwarnings", "default")
    warnings.filterwarnings("default", category=PytestBenchmarkWarning)  # outside of tests
    start: dict[str, Any] = {"settings": {name: os.environ[name] for name in THREAD_SETTINGS if name in os.environ}}
    if "torch" in sides.installed():
        import torch

        start["threads"] = {"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads()}
    config.stash[AT_START] = start


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add what a time depends on: versions, devices, the CPUs this process may use and each side's threads."""
    start = config.stash[AT_START]
    machine_info["versions"] = {**versions(), **versions(OTHERS)}
    machine_info["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine_info["usable_cpus"] = usable_cpus()
    machine_info["thread_settings"] = start["settings"]
    if "jax" in sides.installed():
        import jax

        machine_info["jax"] = {"devices": [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]}
    if "torch" in sides.installed():
        import torch

        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        machine_info["torch"] = {"devices": gpus or ["cpu"], **start["threads"]}
