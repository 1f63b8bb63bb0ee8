"""The resume check on any trainer: a training function with one mark, killed, resumed, and compared by state.

Knows neither run directories nor checkpoints of the suite: what it sees are live objects, and files the trainer left.
"""

from parity.checks.live.align import varying
from parity.checks.live.assertions import ResumeBrokenError, assert_resumes
from parity.checks.live.check import Mode, open_workdir, resumes, runner_of
from parity.checks.live.driver import Runner
from parity.checks.live.folder import copy_folder
from parity.checks.live.inline import Train
from parity.checks.live.judge import judge_same
from parity.checks.live.nudge import Compute, Nudge
from parity.checks.live.recorder import MarkError
from parity.checks.live.request import Request
from parity.checks.live.same_thread import SameThreadExecutor
from parity.checks.live.scenarios import SCENARIOS
from parity.checks.live.trace import Trace

__all__ = [
    "SCENARIOS",
    "Compute",
    "MarkError",
    "Mode",
    "Nudge",
    "Request",
    "ResumeBrokenError",
    "Runner",
    "SameThreadExecutor",
    "Trace",
    "Train",
    "assert_resumes",
    "copy_folder",
    "judge_same",
    "open_workdir",
    "resumes",
    "runner_of",
    "varying",
]
