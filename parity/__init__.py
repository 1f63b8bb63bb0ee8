"""A suite that proves that training resumes exactly: in PyTorch, in JAX, and across the two.

Every public name is imported when it is first used, so `import parity` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.capture import evaluation, mark, register, saving
    from parity.checks.models import MapBrokenError, assert_same_model, find_parting, map_models
    from parity.checks.ports import (
        HandoverBrokenError,
        TwinsDifferError,
        assert_handover,
        assert_twins,
        hand_over,
        hands_over,
        twins_agree,
    )
    from parity.checks.proving import PortBrokenError, assert_port, prove_port
    from parity.checks.resume import ResumeBrokenError, assert_resumes, resumes
    from parity.contract import StepRecord, Trainer, Validation
    from parity.convert import seal
    from parity.spec import RunSpec, preset
    from parity.state import DistributedOrder, LoaderOrder, OrderedSource, TorchGenerator, TrainingState

__all__ = [
    "DistributedOrder",
    "HandoverBrokenError",
    "LoaderOrder",
    "MapBrokenError",
    "OrderedSource",
    "PortBrokenError",
    "ResumeBrokenError",
    "RunSpec",
    "StepRecord",
    "TorchGenerator",
    "Trainer",
    "TrainingState",
    "TwinsDifferError",
    "Validation",
    "assert_handover",
    "assert_port",
    "assert_resumes",
    "assert_same_model",
    "assert_twins",
    "evaluation",
    "find_parting",
    "hand_over",
    "hands_over",
    "map_models",
    "mark",
    "preset",
    "prove_port",
    "register",
    "resumes",
    "saving",
    "seal",
    "twins_agree",
]

_PACKAGES = {
    "DistributedOrder": "state",
    "HandoverBrokenError": "checks.ports",
    "LoaderOrder": "state",
    "MapBrokenError": "checks.models",
    "OrderedSource": "state",
    "PortBrokenError": "checks.proving",
    "ResumeBrokenError": "checks.resume",
    "RunSpec": "spec",
    "TorchGenerator": "state",
    "TrainingState": "state",
    "TwinsDifferError": "checks.ports",
    "assert_handover": "checks.ports",
    "assert_port": "checks.proving",
    "assert_resumes": "checks.resume",
    "assert_same_model": "checks.models",
    "assert_twins": "checks.ports",
    "evaluation": "capture",
    "find_parting": "checks.models",
    "hand_over": "checks.ports",
    "hands_over": "checks.ports",
    "map_models": "checks.models",
    "mark": "capture",
    "preset": "spec",
    "prove_port": "checks.proving",
    "register": "capture",
    "resumes": "checks.resume",
    "saving": "capture",
    "seal": "convert",
    "twins_agree": "checks.ports",
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
