"""Checks across sides: twins and handover, within 1e-12 in float64 and a measured envelope below."""

from parity.checks import losses
from parity.reference.across.agreement import agree
from parity.reference.across.crossing import check_handover, check_twins
from parity.reference.across.curves import EXACT, StepCurve, run_from
from parity.reference.across.envelopes import Envelope, measure_envelope, noise_floor, perturbed
from parity.reference.across.pair import TwinPair

__all__ = [
    "EXACT",
    "Envelope",
    "StepCurve",
    "TwinPair",
    "agree",
    "check_handover",
    "check_twins",
    "losses",
    "measure_envelope",
    "noise_floor",
    "perturbed",
    "run_from",
]
