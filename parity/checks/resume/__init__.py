"""The resume check: a run that was killed and resumed against one that nothing stopped, bitwise."""

from parity.checks.resume.check import check_resume, describe_evidence, drill_spec, run_here, run_processes
from parity.checks.resume.evidence import Evidence, LeafEvent, read_evidence
from parity.checks.resume.judge import judge
from parity.checks.resume.process import ENVIRONMENT, end_all
from parity.checks.resume.trace import trace_resume

__all__ = [
    "ENVIRONMENT",
    "Evidence",
    "LeafEvent",
    "check_resume",
    "describe_evidence",
    "drill_spec",
    "end_all",
    "judge",
    "read_evidence",
    "run_here",
    "run_processes",
    "trace_resume",
]
