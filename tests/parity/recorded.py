"""The calls that decide what outlives a crash, recorded in order: fsync, rename, mkdir, and removals."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest


def record_calls(patch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """Return a list that fills with `fsync a/b`, `rename a -> b`, `mkdir a`, `rmtree a`: paths below a directory."""
    calls: list[str] = []
    fsync, rename, mkdir, rmtree = os.fsync, os.rename, os.mkdir, shutil.rmtree

    def short(path: Any) -> str:
        return os.path.relpath(os.fspath(path), root)

    def synced(handle: int) -> None:
        calls.append(f"fsync {short(os.readlink(f'/proc/self/fd/{handle}'))}")
        fsync(handle)

    def renamed(source: Any, target: Any, **options: Any) -> None:
        calls.append(f"rename {short(source)} -> {short(target)}")
        rename(source, target, **options)

    def made(path: Any, *args: Any, **options: Any) -> None:
        mkdir(path, *args, **options)
        calls.append(f"mkdir {short(path)}")

    def removed(path: Any, *args: Any, **options: Any) -> None:
        calls.append(f"rmtree {short(path)}")
        rmtree(path, *args, **options)

    patch.setattr(os, "fsync", synced)
    patch.setattr(os, "rename", renamed)
    patch.setattr(os, "mkdir", made)
    patch.setattr(shutil, "rmtree", removed)
    return calls
