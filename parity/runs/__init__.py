"""One process of a run: its directory, its loop, how it resumes, how it reacts to signals, how several act as one.

Takes a side and a run as arguments; knows the run by its plan and its identity, and never asks which side it is.
"""

from parity.runs.crossing_over import NamedSide, cross_over
from parity.runs.directory import RunDirectory
from parity.runs.launching import launch, variables
from parity.runs.options import QUIET, FaultInjection, Observers, OnError, ProcessOptions, ProcessOutcome
from parity.runs.peers import leave
from parity.runs.process import train
from parity.runs.remote import RemoteCopy
from parity.runs.resume import ResumeChoice, compare_topology, resume_run, skips_before
from parity.runs.signals import DEADLINE_SECONDS, Signals
from parity.runs.together import Alone, join
from parity.runs.waiting import WatchedSignals

__all__ = [
    "DEADLINE_SECONDS",
    "QUIET",
    "Alone",
    "FaultInjection",
    "NamedSide",
    "Observers",
    "OnError",
    "ProcessOptions",
    "ProcessOutcome",
    "RemoteCopy",
    "ResumeChoice",
    "RunDirectory",
    "Signals",
    "WatchedSignals",
    "compare_topology",
    "cross_over",
    "join",
    "launch",
    "leave",
    "resume_run",
    "skips_before",
    "train",
    "variables",
]
