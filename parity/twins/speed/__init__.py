"""Steps per second of a trainer in its ways to run, timed in turn, as a file that pytest-benchmark's tools read.

Takes a side as an argument; knows RunSpec and its field `execution`, no framework.
"""

from parity.twins.speed.laps import Lap, rewinding, same_work
from parity.twins.speed.measure import MODES, STEPS, measure_speed

__all__ = [
    "MODES",
    "STEPS",
    "Lap",
    "measure_speed",
    "rewinding",
    "same_work",
]
