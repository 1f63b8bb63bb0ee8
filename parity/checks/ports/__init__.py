"""Checks across two trainers: a trainer and its port, and a run that is handed from one to the other.

Knows no RunSpec and no side: both are training functions with one mark per step, seen as `checks.running` sees them.
"""

from parity.checks.ports.continued import conversion, hand_over
from parity.checks.ports.handover import Convert, HandoverBrokenError, assert_handover, hands_over
from parity.checks.ports.judge import ARRAY_LIMIT
from parity.checks.ports.session import CLOSE, CrossingBrokenError
from parity.checks.ports.twins import TwinsDifferError, assert_twins, twins_agree
from parity.mapping import Pair, PairRule

__all__ = [
    "ARRAY_LIMIT",
    "CLOSE",
    "Convert",
    "CrossingBrokenError",
    "HandoverBrokenError",
    "Pair",
    "PairRule",
    "TwinsDifferError",
    "assert_handover",
    "assert_twins",
    "conversion",
    "hand_over",
    "hands_over",
    "twins_agree",
]
