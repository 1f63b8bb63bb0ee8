"""What the traces of runs show: the differences between them, which of them count, and in which order they are named.

Starts no run.
"""

from parity.checks.judging.advice import advise, each_once, measured, suspect
from parity.checks.judging.choices import ValueChoice, choices_of, say_unmeasured
from parity.checks.judging.envelope import (
    LIMIT,
    RUNS,
    EqualRunsEnvelope,
    bytes_of,
    choose_steps,
    is_floating,
    is_trained_number,
    moved_by_rounding,
    why_not_rounding,
)
from parity.checks.judging.evidence import (
    NONE,
    Asked,
    Evidence,
    Outcome,
    TwoStates,
    Uninterrupted,
    after_resume,
    both_runs,
    parted_paths,
    stepwise,
    text_of,
    uninterrupted_of,
)
from parity.checks.judging.files import judge_files, own_folders
from parity.checks.judging.further import has_bytes_twice
from parity.checks.judging.in_checkpoints import saved_first
from parity.checks.judging.judge import judge_resumed, judge_same, varying
from parity.checks.judging.kept import judge_kept
from parity.checks.judging.meant import Meant
from parity.checks.judging.no_evidence import UNWRITTEN, may_be_unwritten, not_finite
from parity.checks.judging.ordering import OUTER, identifiers, is_variable
from parity.checks.judging.process_start import ProcessStart, begun_of
from parity.checks.judging.ranks import base_of, copies_apart, placed_in, processes, ranks_apart
from parity.checks.judging.read_ahead import blocks_beside, gives_alike, is_of_rows
from parity.checks.judging.recounted import RecountedRuns, judge_later, judge_recounted, named, recount
from parity.checks.judging.resume_start import Kill, is_unfinished, on_their_way
from parity.checks.judging.returned import judge_printed, judge_returned
from parity.checks.judging.shown import name_what_is_shown, put_roots_first
from parity.checks.judging.side_effects import judge_declared, observe_effects
from parity.checks.judging.sites import is_decided, sites_of, sites_of_choice
from parity.checks.judging.usage import Use

__all__ = [
    "LIMIT",
    "NONE",
    "OUTER",
    "RUNS",
    "UNWRITTEN",
    "Asked",
    "EqualRunsEnvelope",
    "Evidence",
    "Kill",
    "Meant",
    "Outcome",
    "ProcessStart",
    "RecountedRuns",
    "TwoStates",
    "Uninterrupted",
    "Use",
    "ValueChoice",
    "advise",
    "after_resume",
    "base_of",
    "begun_of",
    "blocks_beside",
    "both_runs",
    "bytes_of",
    "choices_of",
    "choose_steps",
    "copies_apart",
    "each_once",
    "gives_alike",
    "has_bytes_twice",
    "identifiers",
    "is_decided",
    "is_floating",
    "is_of_rows",
    "is_trained_number",
    "is_unfinished",
    "is_variable",
    "judge_declared",
    "judge_files",
    "judge_kept",
    "judge_later",
    "judge_printed",
    "judge_recounted",
    "judge_resumed",
    "judge_returned",
    "judge_same",
    "may_be_unwritten",
    "measured",
    "moved_by_rounding",
    "name_what_is_shown",
    "named",
    "not_finite",
    "observe_effects",
    "on_their_way",
    "own_folders",
    "parted_paths",
    "placed_in",
    "processes",
    "put_roots_first",
    "ranks_apart",
    "recount",
    "saved_first",
    "say_unmeasured",
    "sites_of",
    "sites_of_choice",
    "stepwise",
    "suspect",
    "text_of",
    "uninterrupted_of",
    "varying",
    "why_not_rounding",
]
