"""Compiled programs on disk, shared by the processes of one check: each program is compiled once."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

__all__ = ["share_programs", "shared_programs"]

DIRECTORY = "jax_compilation_cache_dir"
SETTINGS: dict[str, float] = {
    "jax_compilation_cache_max_size": 4 << 30,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
}
"""JAX locks a cache that has a limit, so that no process reads half a file; no check ever comes near this one."""


def share_programs(directory: Path) -> None:
    """Keep what this process compiles from now on in a directory, on a machine without accelerators.

    A cache that the user has set up stays the only one. No backend is started: what is to be set before that can be.

    Args:
        directory: As for `shared_programs`.
    """
    if getattr(jax.config, DIRECTORY) is None and importlib.util.find_spec("filelock") is not None:
        for name, value in {**SETTINGS, DIRECTORY: str(directory)}.items():
            jax.config.update(name, value)


@contextmanager
def shared_programs(directory: Path) -> Iterator[None]:
    """Keep compiled programs in a directory while the block lasts, for this process and those it starts.

    A cache that the user has set up stays the only one. On an accelerator nothing is shared: there XLA may choose
    between algorithms by timing them, and a check of two process starts must see what each of them chooses.

    Args:
        directory: Created when the first program is written; the caller removes it.

    Numerics: On the CPU, a program that is loaded gives the bits of one compiled anew
    (`tests/jax_side/test_compiled.py`). A process that is killed while it writes leaves half a file there; JAX warns
    and compiles.
    """
    if getattr(jax.config, DIRECTORY) is not None or jax.default_backend() != "cpu":
        yield
        return
    settings: dict[str, float | str] = {**SETTINGS, DIRECTORY: str(directory)}
    before = {name: getattr(jax.config, name) for name in settings}
    inherited = {name: os.environ.get(name.upper()) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
            os.environ[name.upper()] = str(value)
        compilation_cache.reset_cache()  # it remembers that there was none, if anything was compiled before
        yield
    finally:
        for name, given in before.items():
            jax.config.update(name, given)
        for name, text in inherited.items():
            if text is None:
                os.environ.pop(name.upper(), None)
            else:
                os.environ[name.upper()] = text
        compilation_cache.reset_cache()
