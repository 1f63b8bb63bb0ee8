"""The resume check: a run that was killed and resumed against one that nothing stopped, bitwise.

Takes any trainer: knows a run by its plan, its identity and what it leaves on disk.
"""

from parity.reference.planned.check import (
    RunPair,
    check_resume,
    check_scenarios,
    describe_evidence,
    run_here,
    run_processes,
    trace_resume,
)
from parity.reference.planned.drive import CommandOf, drive_here, drive_processes
from parity.reference.planned.evidence import LeafEvent, RunEvidence, read_evidence
from parity.reference.planned.judge import judge
from parity.reference.planned.process import Started, StartProcess, TrainingProcess, end_all, start_interpreter
from parity.reference.planned.scenarios import Leg, default_kills, plan_scenarios

__all__ = [
    "CommandOf",
    "LeafEvent",
    "Leg",
    "RunEvidence",
    "RunPair",
    "StartProcess",
    "Started",
    "TrainingProcess",
    "check_resume",
    "check_scenarios",
    "default_kills",
    "describe_evidence",
    "drive_here",
    "drive_processes",
    "end_all",
    "judge",
    "plan_scenarios",
    "read_evidence",
    "run_here",
    "run_processes",
    "start_interpreter",
    "trace_resume",
]
