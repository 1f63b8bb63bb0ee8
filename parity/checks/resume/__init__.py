"""The resume check on any trainer: a training function with one mark, killed, resumed, and compared by state.

Knows neither run directories nor checkpoints of the suite: what it sees are live objects, and files the trainer left.
"""

from parity.checks.resume.check import ResumeBrokenError, assert_resumes, resumes
from parity.checks.resume.scenarios import SCENARIOS

__all__ = [
    "SCENARIOS",
    "ResumeBrokenError",
    "assert_resumes",
    "resumes",
]
