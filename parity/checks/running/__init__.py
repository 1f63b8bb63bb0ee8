"""Runs of a training function in this process or in one of its own: what is asked of one, and the trace it leaves.

Knows no verdict: what a trace means is said in `parity.checks.judging`.
"""

from parity.checks.running.child import tail_of
from parity.checks.running.containers import is_database
from parity.checks.running.decoded import CURVES, DIRECTORY, LINK, Reader, contents
from parity.checks.running.folder import AtOriginalPath, copy_folder, is_log, list_folder, set_apart
from parity.checks.running.inline import Train
from parity.checks.running.lines import IN_ORDER
from parity.checks.running.loads import BEYOND, INSIDE, Access, Decision, DecisionSite, is_unread
from parity.checks.running.nudge import Compute, Nudge
from parity.checks.running.opening import RunMode, open_workdir, parameters_of, require_call, runner_of
from parity.checks.running.recorder import Killed, MarkError
from parity.checks.running.run import (
    AT_ENTRY,
    Effect,
    Mark,
    Request,
    Runner,
    SameThreadExecutor,
    Trace,
    without_digits,
)
from parity.checks.running.source import SAVES, called_name, nested_locals
from parity.checks.running.turned import INVERSE, Turn, place_of

__all__ = [
    "AT_ENTRY",
    "BEYOND",
    "CURVES",
    "DIRECTORY",
    "INSIDE",
    "INVERSE",
    "IN_ORDER",
    "LINK",
    "SAVES",
    "Access",
    "AtOriginalPath",
    "Compute",
    "Decision",
    "DecisionSite",
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
    "Turn",
    "called_name",
    "contents",
    "copy_folder",
    "is_database",
    "is_log",
    "is_unread",
    "list_folder",
    "nested_locals",
    "open_workdir",
    "parameters_of",
    "place_of",
    "require_call",
    "runner_of",
    "set_apart",
    "tail_of",
    "without_digits",
]
