"""The proof of a port: two trainers, stage by stage, from the interface to a handover, up to the first that parts.

Knows no framework: models and trainers are `parity.contract.ModelProbe` and `TrainerProbe`.
"""

from parity.checks.proving.port import PortBrokenError, assert_port, prove_port, prove_sources
from parity.checks.proving.sources import NAMES, PortSource
from parity.checks.proving.verdict import STAGES, PortProof, PortStage

__all__ = [
    "NAMES",
    "STAGES",
    "PortBrokenError",
    "PortProof",
    "PortSource",
    "PortStage",
    "assert_port",
    "prove_port",
    "prove_sources",
]
