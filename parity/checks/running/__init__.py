"""Runs of a training function in this process or in one of its own: what is asked of one, and the trace it leaves.

Knows no verdict: what a trace means is said in `parity.checks.judging`.
"""

from parity.checks.running.decoded import CURVES, Reader, contents
from parity.checks.running.folder import copy_folder, is_log, list_folder
from parity.checks.running.inline import Train
from parity.checks.running.loads import Access, is_unread
from parity.checks.running.nudge import Compute, Nudge
from parity.checks.running.opening import RunMode, open_workdir, runner_of
from parity.checks.running.original_path import AtOriginalPath, set_apart
from parity.checks.running.put_back import put_back_later
from parity.checks.running.recorder import Killed, MarkError
from parity.checks.running.request import Request
from parity.checks.running.runner import Runner
from parity.checks.running.same_thread import SameThreadExecutor
from parity.checks.running.source import SAVES, called_name
from parity.checks.running.trace import Effect, Mark, Trace, without_digits

__all__ = [
    "CURVES",
    "SAVES",
    "Access",
    "AtOriginalPath",
    "Compute",
    "Effect",
    "Killed",
    "Mark",
    "MarkError",
    "Nudge",
    "Reader",
    "Request",
    "RunMode",
    "Runner",
    "SameThreadExecutor",
    "Trace",
    "Train",
    "called_name",
    "contents",
    "copy_folder",
    "is_log",
    "is_unread",
    "list_folder",
    "open_workdir",
    "put_back_later",
    "runner_of",
    "set_apart",
    "without_digits",
]
