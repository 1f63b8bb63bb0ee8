"""A side that is not the suite's: PyTorch's under the name `mine`, and packages that add sides by entry points."""

import sys
from pathlib import Path
from typing import Any

import pytest

from parity import sides
from parity.spec import RunSpec

ROOT = Path(__file__).resolve().parents[2]

MODULE = """
import torch_side
from torch_side import topology

def build(spec, directory=None, *, attempt=0):
    trainer = torch_side.build(spec, directory, attempt=attempt)
    trainer.side = "mine"
    return trainer
"""


class Mine:
    """What a team brings: an object that fulfils `Side` and that no registry knows."""

    def build(self, spec: RunSpec, directory: Path | None = None, *, attempt: int = 0) -> Any:
        """Build PyTorch's trainer under another name."""
        trainer: Any = sides.load("torch").build(spec, directory, attempt=attempt)
        trainer.side = "mine"
        return trainer

    def topology(self, spec: RunSpec) -> dict[str, Any]:
        """Return PyTorch's topology."""
        return sides.load("torch").topology(spec)


def install(
    site: Path, patch: pytest.MonkeyPatch, entries: str, *, package: str = "mine", code: str = MODULE
) -> None:
    """Put a module and its distribution where this process and its children find them.

    Args:
        site: A directory of installed packages.
        patch: Takes it all back.
        entries: What stands below `[parity.sides]`.
        package: Name of the module and of the distribution.
        code: The module.
    """
    metadata = site / f"{package}-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(f"[parity.sides]\n{entries}\n")
    (site / f"{package}.py").write_text(code)
    patch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    if str(site) not in sys.path:
        patch.syspath_prepend(str(site))
    patch.setitem(sys.modules, package, None)  # forgotten at the end of the test, whoever imports it
    del sys.modules[package]
