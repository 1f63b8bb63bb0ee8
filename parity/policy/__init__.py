"""The checkpoint policy: which checkpoints to keep, which one is the best and which one the latest.

A pure function, the table of cases that specifies it, a conformance test for any implementation, and a simulation.
Knows no directory, no run and no framework.
"""

from parity.policy.cases import GROUPS, Case, Change, Late, Resume, Save, Validated, cases, read
from parity.policy.conformance import Implementation, Mismatch, PolicyInMemory, replay
from parity.policy.rules import (
    INT32,
    RANGES,
    Mode,
    Rules,
    Saved,
    Which,
    best,
    is_new_best,
    kept,
    latest,
    mode_of,
    reasons,
)
from parity.policy.simulate import Moment, read_curve, simulate

__all__ = [
    "GROUPS",
    "INT32",
    "RANGES",
    "Case",
    "Change",
    "Implementation",
    "Late",
    "Mismatch",
    "Mode",
    "Moment",
    "PolicyInMemory",
    "Resume",
    "Rules",
    "Save",
    "Saved",
    "Validated",
    "Which",
    "best",
    "cases",
    "is_new_best",
    "kept",
    "latest",
    "mode_of",
    "read",
    "read_curve",
    "reasons",
    "replay",
    "simulate",
]
