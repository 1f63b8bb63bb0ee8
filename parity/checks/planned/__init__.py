"""The resume check: a run that was killed and resumed against one that nothing stopped, bitwise.

Takes any trainer: knows a run by its plan, its identity and what it leaves on disk.
"""

from parity.checks.planned.check import RunPair, check_resume, check_scenarios, run_here, run_processes
from parity.checks.planned.drive import CommandOf, drive_here, drive_processes
from parity.checks.planned.evidence import LeafEvent, RunEvidence, read_evidence
from parity.checks.planned.judge import judge
from parity.checks.planned.process import Started, StartProcess, end_all, start_interpreter
from parity.checks.planned.scenarios import Leg, default_kills, plan_scenarios
from parity.checks.planned.trace import describe_evidence, trace_resume

__all__ = [
    "CommandOf",
    "LeafEvent",
    "Leg",
    "RunEvidence",
    "RunPair",
    "StartProcess",
    "Started",
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
