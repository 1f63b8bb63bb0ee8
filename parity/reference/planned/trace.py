"""What a record of the resume check shows: both curves with every kill and resume, validations, digests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parity.checks import digest_batches, digest_leaves, trace, trace_validations
from parity.contract import splice
from parity.reference.planned.evidence import RunEvidence
from parity.reference.planned.judge import Findings
from parity.results import Curves

__all__ = ["describe_evidence", "trace_resume"]


def describe_evidence(reference: RunEvidence, resumed: RunEvidence, findings: Findings) -> dict[str, Any]:
    """Return the fields of a record that show what was judged: `curves` and `digests`.

    Args:
        reference: What the uninterrupted run left.
        resumed: What the killed run left.
        findings: What the judge found; the curves keep the step of its first divergence.
    """
    digests = {"batches": digest_batches(reference.curve)}
    for name, run in (("final state, uninterrupted", reference), ("final state, resumed", resumed)):
        final = next((event for event in reversed(run.events) if event.event == "final"), None)
        if final is not None:
            digests[name] = digest_leaves(final.leaves)
    first = findings.first.step if findings.first else None
    return {"curves": trace_resume(reference, resumed, (first,)), "digests": digests}


def trace_resume(reference: RunEvidence, resumed: RunEvidence, keep: Iterable[int | None] = ()) -> Curves | None:
    """Return what an uninterrupted run and a killed one show, with the marks of every kill and resume.

    Args:
        reference: Evidence of the uninterrupted run.
        resumed: Evidence of the killed one; where it trained a step again, the last time counts.
        keep: Steps that stay however long the run is.
    """
    ends: dict[int, int] = {}
    for record in resumed.records:
        ends[record.attempt] = max(record.step, ends.get(record.attempt, 0))
    last = len(resumed.resumed_from) - 1
    kills = tuple(ends.get(attempt, start or 0) for attempt, start in enumerate(resumed.resumed_from[:last]))
    resumes = tuple(start or 0 for start in resumed.resumed_from[1:])
    return trace(
        reference.curve,
        resumed.curve,
        ("uninterrupted", "killed and resumed"),
        keep=keep,
        kills=kills,
        resumes=resumes,
        validations=trace_validations(splice(reference.validations), splice(resumed.validations)),
    )
