"""Checks across sides: twins and handover, by 1e-12 in float64 and a measured envelope below."""

from parity.checks.across.agree import agree
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
)
from parity.checks.across.envelope import Envelope, measure_envelope
from parity.checks.across.handover import check_handover
from parity.checks.across.pair import TwinPair
from parity.checks.across.twins import check_twins
from parity.checks.across.walk import Curve, first_exact_difference, losses, walk

__all__ = [
    "ENVELOPE_LIMIT",
    "FLOAT64_LIMIT",
    "FLOAT64_NOISE_FLOOR",
    "FLOOR_ULPS",
    "SEEDS",
    "WINDOW",
    "Curve",
    "Envelope",
    "TwinPair",
    "agree",
    "check_handover",
    "check_twins",
    "envelope",
    "envelope_multiple",
    "first_exact_difference",
    "losses",
    "measure_envelope",
    "ulp",
    "walk",
]
