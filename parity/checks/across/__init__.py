"""Checks across sides: twins and handover, within 1e-12 in float64 and a measured envelope below.

The criteria are what checks on any trainer take from here: all else, which needs a RunSpec and the twins, is
imported when it is first used.
"""

from typing import TYPE_CHECKING

from parity.checks.across.criteria import (
    ENVELOPE_LIMIT,
    FLOAT64_LIMIT,
    FLOAT64_NOISE_FLOOR,
    FLOOR_ULPS,
    SEEDS,
    WINDOW,
    envelope,
    envelope_multiple,
    ulp,
    widest,
)

if TYPE_CHECKING:
    from parity.checks.across.agreement import agree
    from parity.checks.across.curves import EXACT, StepCurve, losses, run_from
    from parity.checks.across.envelopes import Envelope, measure_envelope
    from parity.checks.across.handover import check_handover
    from parity.checks.across.pair import TwinPair
    from parity.checks.across.perturb import perturbed
    from parity.checks.across.twins import check_twins

__all__ = [
    "ENVELOPE_LIMIT",
    "EXACT",
    "FLOAT64_LIMIT",
    "FLOAT64_NOISE_FLOOR",
    "FLOOR_ULPS",
    "SEEDS",
    "WINDOW",
    "Envelope",
    "StepCurve",
    "TwinPair",
    "agree",
    "check_handover",
    "check_twins",
    "envelope",
    "envelope_multiple",
    "losses",
    "measure_envelope",
    "perturbed",
    "run_from",
    "ulp",
    "widest",
]


def __getattr__(name: str) -> object:
    """Import what needs a RunSpec (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'parity.checks.across' has no attribute {name!r}")
    from parity.checks.across import agreement, curves, envelopes, handover, pair, perturb, twins

    modules = (agreement, curves, envelopes, handover, pair, perturb, twins)
    return next(getattr(module, name) for module in modules if name in module.__all__)
