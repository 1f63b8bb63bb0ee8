"""The resume check on trainers of anybody: a training function with one mark, killed, resumed, and compared by state.

Knows neither run directories nor checkpoints of the suite: what it sees are live objects, and files the trainer left.
"""

from parity.checks.live.assertions import ResumeBrokenError, assert_resumes
from parity.checks.live.check import Mode, resumes
from parity.checks.live.recorder import MarkError
from parity.checks.live.roads import ROADS

__all__ = ["ROADS", "MarkError", "Mode", "ResumeBrokenError", "assert_resumes", "resumes"]
