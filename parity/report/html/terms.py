"""The terms of the check page, explained where they stand: verdicts, criteria, columns, and what a chart shows."""

from __future__ import annotations

from html import escape

from parity.report.html.page import Html
from parity.report.words import CRITERIA

__all__ = ["terms_of_findings", "terms_of_overview"]

_OVERVIEW = {
    "holds": "What was compared is equal by its criterion.",
    "broken": "Something was lost or changed; the check names it.",
    "crashed, inconclusive, empty": "No verdict was reached; none of them is a success.",
    "spec": "The run that was checked: model, data, optimizer, schedule. Every field is listed under Specs.",
    "bitwise, float64, envelope": f"The criterion by which two runs count as equal. {CRITERIA['bitwise']}; "
    f"{CRITERIA['float64']}; {CRITERIA['envelope']}.",
    "max rel diff": "The largest difference of the training loss, divided by the loss.",
    "x envelope": "The smallest multiple of the measured envelope that would have passed.",
    "envelope": "How far the loss moves when every initial parameter changes by one unit in the last place: what "
    "rounding alone does to this run, measured over several seeds.",
}

_FINDINGS = {
    "Suspects": "components of the training state that were lost or changed, by what differs first.",
    "First divergence": "the first step at which the two runs recorded different values.",
    "Leaf": "one array or number of the training state, such as one weight matrix or one optimizer moment.",
}


def terms_of_overview() -> Html:
    """Return the terms of the overview, with what each means."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(said)}</dd></div>" for name, said in _OVERVIEW.items())
    return f'<details class="terms" open><summary>What the words mean</summary><dl>{items}</dl></details>'


def terms_of_findings() -> Html:
    """Return the terms of the findings of a check that does not hold."""
    said = " ".join(f"<b>{escape(name)}</b>: {escape(meaning)}" for name, meaning in _FINDINGS.items())
    return f'<p class="note">{said}</p>'
