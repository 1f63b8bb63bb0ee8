"""Checks across sides: twins and handover, within 1e-12 in float64 and a measured envelope below."""

from parity.checks.across.agreement import agree
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
from parity.checks.across.curves import EXACT, Curve, losses, run_from
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
    "Curve",
    "Envelope",
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
