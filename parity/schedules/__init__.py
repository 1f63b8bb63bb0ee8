"""Learning-rate schedules: small state machines on the host whose rates are PyTorch's, bit for bit.

A rule holds constants under PyTorch's names; a `Schedule` is a rule at its position, for several parameter groups.
Knows no framework, no optimizer, and nothing of what the rates are used for.
"""

from parity.schedules.cosines import Cosine, CosineRestarts, RestartPosition
from parity.schedules.cyclic import Cyclic
from parity.schedules.decays import Constant, Exponential, Linear, MultiStep, Polynomial, Step
from parity.schedules.one_cycle import OneCycle
from parity.schedules.plateau import Plateau, PlateauPosition
from parity.schedules.rule import AnyRule, Position, PositionBase, ScheduleRule
from parity.schedules.schedule import Moves, Schedule
from parity.schedules.state import RULES, decode_rule, encode_rule
from parity.schedules.tables import Lambda, Multiplicative, tabulate
from parity.schedules.trees import Beside, Chained, Sequential, TreePosition
from parity.schedules.values import Groups, spread

__all__ = [
    "RULES",
    "AnyRule",
    "Beside",
    "Chained",
    "Constant",
    "Cosine",
    "CosineRestarts",
    "Cyclic",
    "Exponential",
    "Groups",
    "Lambda",
    "Linear",
    "Moves",
    "MultiStep",
    "Multiplicative",
    "OneCycle",
    "Plateau",
    "PlateauPosition",
    "Polynomial",
    "Position",
    "PositionBase",
    "RestartPosition",
    "Schedule",
    "ScheduleRule",
    "Sequential",
    "Step",
    "TreePosition",
    "decode_rule",
    "encode_rule",
    "spread",
    "tabulate",
]
