"""The page docs/resume-bugs.md, from the catalogue: `python -m tests.faults.live.page` writes it."""

from __future__ import annotations

from pathlib import Path

from parity.checks.judging.advice import advise
from parity.checks.judging.evidence import Evidence
from tests.faults.catalog import ENTRIES
from tests.faults.live.entry import Entry

__all__ = ["PAGE", "render"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "resume-bugs.md"
_HEAD = """# Resume bugs that really happened

{count} defects from public trackers. {planted} of them are planted in small real trainers (`tests/faults/live/`), and
the resume check of [your trainer](your-trainer.md) must find every one and name the right component first. {policy}
are a difference of policy or a trap for false alarms and must stay green; {ranks} need several processes, {pairs} of
them are planted in a trainer of two.
`python -m tests.faults.live.page` writes this page; [other tools](other-tools.md) were given the same bugs.

| bug | reported | what is lost | named | how it shows | how to avoid it |
|---|---|---|---|---|---|
"""


def render() -> str:
    """Return the page."""
    planted = [e for e in ENTRIES if e.train is not None and not e.policy]
    ids = {entry.id for entry in ENTRIES}
    head = _HEAD.format(
        count=len(ids),
        planted=len({e.id for e in planted}),
        policy=len({e.id for e in ENTRIES if e.policy}),
        ranks=len({e.id for e in ENTRIES if e.ranks}),
        pairs=len({e.id for e in ENTRIES if e.processes > 1}),
    )
    return head + "\n".join(_row(entry) for entry in ENTRIES) + "\n"


def _row(entry: Entry) -> str:
    shows = entry.reveals or ("needs several processes" if entry.ranks else entry.why_not)
    scenarios = "" if entry.scenarios == ("kill",) else f" (scenario {', '.join(entry.scenarios)})"
    named = ", ".join(f"`{component.rstrip('.')}`" for component in entry.expected) or "nothing: it must stay green"
    if not entry.expected and not entry.policy:
        named = ""
    evidence = Evidence(entry.expected[0] if entry.expected else "", "it", 0, "", "", "at the resume")
    avoid = advise(evidence) if entry.expected else ""
    cells = (f"`{entry.name}`", _link(entry.source), _cell(entry.lost), named, _cell(shows) + scenarios, _cell(avoid))
    return f"| {' | '.join(cells)} |"


def _link(source: str) -> str:
    """Return an issue of a public tracker, `owner/name#number`, as a link to it."""
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{repository}/issues/{number})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
