"""One process of a run: its directory, its loop, how it resumes, how it reacts to signals, how several act as one.

Takes a side as an argument and never asks which it is.
"""

from parity.runs.directory import RunDirectory
from parity.runs.loop import Drills, OnError, Outcome, train
from parity.runs.peers import leave
from parity.runs.resume import Resume, compare_topology, resume_run, skips_behind
from parity.runs.signals import DEADLINE_SECONDS, Signals
from parity.runs.together import Alone, join
from parity.runs.waiting import WatchedSignals

__all__ = [
    "DEADLINE_SECONDS",
    "Alone",
    "Drills",
    "OnError",
    "Outcome",
    "Resume",
    "RunDirectory",
    "Signals",
    "WatchedSignals",
    "compare_topology",
    "join",
    "leave",
    "resume_run",
    "skips_behind",
    "train",
]
