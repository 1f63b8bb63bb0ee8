"""A suite that proves that training resumes exactly: in PyTorch, in JAX, and across the two.

Every public name is imported when it is first used, so `import parity` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.capture import mark, register
    from parity.checks.live import ResumeBrokenError, assert_resumes, resumes
    from parity.contract import StepRecord, Trainer, TrainingState, Validation
    from parity.spec import RunSpec, preset

__all__ = [
    "ResumeBrokenError",
    "RunSpec",
    "StepRecord",
    "Trainer",
    "TrainingState",
    "Validation",
    "assert_resumes",
    "mark",
    "preset",
    "register",
    "resumes",
]

_PACKAGES = {
    "ResumeBrokenError": "checks.live",
    "RunSpec": "spec",
    "assert_resumes": "checks.live",
    "mark": "capture",
    "preset": "spec",
    "register": "capture",
    "resumes": "checks.live",
}
"""Public name to the package that defines it; the names that are not listed come from `contract`."""


def __getattr__(name: str) -> object:
    """Import a public name (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'parity' has no attribute {name!r}")
    value = getattr(import_module(f"parity.{_PACKAGES.get(name, 'contract')}"), name)
    globals()[name] = value  # found at once from now on: a mark costs next to nothing
    return value


def __dir__() -> list[str]:
    """List the public names, also those that are not imported yet."""
    return sorted(__all__)
