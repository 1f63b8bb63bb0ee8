"""What a file or a result shows follows from what differs in the run: which of that is named before the file.

A generator, a mode and a gradient alone are no loss, and most resumes make some of them otherwise: a loader draws a
new seed, a gradient is cleared before the next one is made. Where only a file tells that something was lost, they are
named after a value that differs at the resume, and at the end just as it does in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parity.checks.judging.differences import Differences
from parity.checks.judging.evidence import RANK, Evidence, Outcome, after_resume, text_of

__all__ = ["name_what_is_shown", "no_loss_alone", "put_roots_first", "where_it_ends"]


def no_loss_alone(seen: Differences) -> frozenset[str]:
    """Return the paths that differ at the resume and by themselves are no loss: generators, modes, gradients."""
    both = seen.states[0]
    return frozenset(
        path
        for path in seen.found[0]
        if both.leaf(path).role in ("stream", "gradient") or both.leaf(path).component == "model.mode"
    )


def where_it_ends(seen: Differences) -> dict[tuple[str, str], list[Evidence]]:
    """Return what differs at the resume by how it differs at the end: what was expected there, and what there is."""
    last, lost = seen.states[-1], set(seen.found[0])
    out: dict[tuple[str, str], list[Evidence]] = {}
    for path in last.ranked([path for path in seen.found[-1] if path in lost], RANK):
        ends = text_of(last.left.leaves.get(path)), text_of(last.right.leaves.get(path))
        out.setdefault(ends, []).append(seen.states[0].evidence(path, after_resume(0)))
    return out


def name_what_is_shown(outcome: Outcome) -> None:
    """Put what differs from the resume on, and at the end, before what was found in files and results alone."""
    causes = [e for e in outcome.differs if e.path in outcome.lasting]
    saved = [e for e in outcome.broken if e.component.startswith("checkpoint")]
    begun = [e for e in causes if e.path in outcome.beginnings]
    if not causes and all(_are_bytes(e) for e in saved):
        causes = [e for e in outcome.earliest if not saved or e.path not in outcome.beginnings]
    elif not (causes or any(e.component == "checkpoint.retention" for e in saved)) and not _as_shown(
        outcome.broken, outcome.where_it_ends
    ):
        # numbers that nothing tells from those of a meter: what is shown was as it should be at the resume, so it
        # follows from what was not
        here = [e for e in outcome.earliest if e.when == after_resume(0)]
        causes = [e for e in here if e.path not in outcome.beginnings]
    elif (
        begun and causes == begun
    ):  # every resume makes these so, such as 0 of another type: what lasts besides comes first
        lasting = outcome.lasting - outcome.beginnings
        causes = [*(e for e in outcome.earliest if e.path in lasting), *begun]
    others = {e.path.partition(":")[0] for e in outcome.broken}
    again = [e for e, written in outcome.written_again if written & others]
    causes = again + [e for e in causes if e not in again]
    if causes and causes[0].path in outcome.no_loss_alone:
        alone = [e for e in causes if e.path in outcome.no_loss_alone]
        known = [e for e in causes if e not in alone]
        causes = known + [e for e in _as_shown(outcome.broken, outcome.where_it_ends) if e not in causes] + alone
    outcome.broken = causes + [e for e in outcome.broken if e not in causes]
    outcome.bookkeeping = [e for e in outcome.bookkeeping if e.path not in {c.path for c in causes}]


def _as_shown(broken: list[Evidence], where_it_ends: Mapping[tuple[str, str], list[Evidence]]) -> list[Evidence]:
    """Return what ends in the run as files and results show it, in their order."""
    found = [one for e in broken for one in where_it_ends.get((e.expected, e.got), ())]
    return list(dict.fromkeys(found))


def _are_bytes(e: Evidence) -> bool:
    """Return whether a file of unknown form holds other bytes: they are of what the run holds, if of anything."""
    return e.expected.startswith("file[") and e.got.startswith("file[")


def put_roots_first(outcome: Outcome, of_python: Collection[str]) -> None:
    """Put what differs at the resume, and is taken, before what a decision or the number of marks shows later.

    What only frames of Python's own library lead to, as those of an event loop, comes after all else.

    Args:
        outcome: What was found; changed in place.
        of_python: Functions of such frames.
    """
    around = tuple(f"{name}()." for name in of_python)
    outcome.broken.sort(key=lambda e: e.path.startswith(around))
    ends = [e for e in outcome.broken if e.path == "marks" and e.when == "at the end"]
    others = [e for e in outcome.broken if e not in ends]
    at_once = any(e.when == after_resume(0) for e in others)
    roots = [] if at_once else [e for e in outcome.earliest if e.when == after_resume(0) or not others]
    found = {e.path for e in others}
    roots = [e for e in roots if e.path in found] or roots  # what was found by itself differs there already
    known = {e.path for e in roots}
    outcome.broken = (roots + [e for e in others if e.path not in known] + ends) if outcome.broken else []
    outcome.bookkeeping = [e for e in outcome.bookkeeping if not outcome.broken or e.path not in known]
