"""The words and figures of a report, the same in every rendering: terminal, Markdown, page, annotations."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from parity.results import VERDICTS, CheckRecord, Verdict

__all__ = [
    "CRITERIA",
    "FIGURES",
    "HEADLINES",
    "HEADS",
    "MARKS",
    "clean",
    "counts",
    "duration",
    "exact",
    "findings",
    "flatten",
    "meaning",
    "number_of_checks",
    "row",
    "short",
    "sides",
]

MARKS: dict[Verdict, str] = {"holds": "✓", "broken": "✗", "crashed": "▲", "inconclusive": "?", "empty": "–"}
"""A verdict is shown by word and shape, never by colour alone."""

HEADLINES: dict[Verdict, str] = {
    "holds": "Every check holds.",
    "broken": "At least one check found something lost or changed.",
    "crashed": "At least one check did not finish.",
    "inconclusive": "At least one check could not judge. That is not a success.",
    "empty": "Nothing was compared. That is not a success.",
}

CRITERIA = {
    "bitwise": "bitwise: no tolerance",
    "float64": "float64: the loss agrees to 1e-12 relative",
    "envelope": "envelope: a multiple of what one unit in the last place at the start does to the run",
}

HEADS = (
    *("check", "spec", "precision", "sides", "verdict", "criterion"),
    *("steps", "max rel diff", "x envelope", "seconds"),
)
"""Columns of the table of checks; `row` returns the cells."""

FIGURES = 4
"""How many of the last columns are figures."""

MOST_TEXT = 20_000
"""Characters of one text that are looked at; every rendering shows fewer."""

MOST_ROWS = 500
"""Rows of an environment that are shown."""

_MEANINGS: dict[tuple[str, Verdict], str] = {
    ("resume", "holds"): "Killed and resumed, the run is bit for bit the one that nothing stopped.",
    ("resume", "broken"): "The resumed run is not the one that nothing stopped: something did not survive.",
    ("twins", "holds"): "From one spec, one start and the same batches, both sides train the same curve.",
    ("twins", "broken"): "The sides do not do the same: their curves part further than rounding explains.",
    ("handover", "holds"): "The run changed sides and continued as if it had not.",
    ("handover", "broken"): "The run did not survive changing sides.",
    ("topology", "holds"): "The run changed its placement and continued as if it had not.",
    ("topology", "broken"): "The run did not survive a change of its placement.",
    ("curve", "holds"): "The curve is the baseline that is kept in the repository, by the criterion kept with it.",
    ("curve", "broken"): "The curve is not the baseline that is kept in the repository.",
    (
        "policy",
        "holds",
    ): "After every save, what stays on disk and what is called best and latest is what the rules say.",
    ("policy", "broken"): "What stays on disk, or what is called best or latest, is not what the rules say.",
}

_OF_ANY: dict[Verdict, str] = {
    "holds": "What was compared is equal by its criterion.",
    "broken": "What was compared differs.",
    "crashed": "The check did not finish, so it says nothing about the run.",
    "inconclusive": "Too noisy or incomplete to judge. That is not a success.",
    "empty": "Nothing was compared. That is not a success.",
}


def meaning(record: CheckRecord) -> str:
    """Return what the verdict of a check means, in one sentence."""
    return _MEANINGS.get((record.name.partition(" ")[0], record.verdict), _OF_ANY[record.verdict])


def sides(record: CheckRecord) -> str:
    """Return the sides of a check: `jax, torch`, in their order, `jax > torch`, or with what they ran on."""
    if record.name.startswith("topology "):
        return f"{', '.join(record.sides)}: {record.name.partition(' ')[2]}"
    return (" > " if record.name.startswith("handover") else ", ").join(record.sides)


def row(record: CheckRecord) -> tuple[str, ...]:
    """Return the cells of a check in the order of `HEADS`; what came from a file is not cleaned yet."""
    return (
        record.name.partition(" ")[0],
        record.spec,
        record.precision,
        sides(record),
        record.verdict,
        record.criterion,
        str(record.steps_compared),
        short(record.max_rel_diff),
        short(record.envelope_multiple),
        f"{record.seconds:.1f}",
    )


def counts(records: Iterable[CheckRecord]) -> str:
    """Return how often each verdict occurs, the worst first: `1 broken, 30 holds`."""
    verdicts = [record.verdict for record in records]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)


def number_of_checks(count: int) -> str:
    """Return how many checks there are, in words: `1 check`, `31 checks`."""
    return f"{count} check{'' if count == 1 else 's'}"


def duration(records: Iterable[CheckRecord], environment_of: Mapping[str, Any]) -> float:
    """Return the seconds that all checks took.

    Args:
        records: The checks.
        environment_of: As in a document; `seconds` in it are those of the whole run. Without them, in files of
            earlier versions, which ran one check at a time, the seconds of all checks are added.
    """
    measured = environment_of.get("seconds")
    if isinstance(measured, int | float) and math.isfinite(measured):
        return float(measured)
    return sum(record.seconds for record in records)


def findings(record: CheckRecord) -> list[str]:
    """Return what a check found, a line each: suspects, advice, first divergence, notes."""
    lines = []
    if record.suspects:
        lines.append(f"suspects: {', '.join(record.suspects)}")
    lines += [f"advice: {component}: {advice}" for component, advice in record.advice.items()]
    if record.first_divergence is not None:
        first = record.first_divergence
        lines.append(f"first divergence: step {first.step}, {first.quantity}: {first.expected} became {first.got}")
    return [clean(line) for line in (*lines, *record.notes)]


def short(value: float | None) -> str:
    """Return a figure to two digits; nothing for None.

    Example:
        >>> short(2.53e-15), short(0.0), short(None)
        ('2.5e-15', '0', '')
    """
    return "" if value is None else "0" if value == 0 else f"{value:.2g}"


def exact(value: float | None) -> str:
    """Return a figure with every digit it has; a dash for None.

    Example:
        >>> exact(0.1), exact(200.0), exact(None)
        ('0.1', '200', '–')
    """
    return "–" if value is None else repr(value).removesuffix(".0")


def clean(text: object) -> str:
    r"""Return text on one line, its control and direction characters spelled out: a file may steer no terminal.

    Example:
        >>> print(clean("a\x1b[31mb\nc"))
        a\x1b[31mb c
    """
    joined = " ".join(str(text)[:MOST_TEXT].split())
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") else c for c in joined)


def flatten(values: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return dotted names and plain values of nested tables.

    Example:
        >>> flatten({"versions": {"jax": "0.10.2"}, "cpus": 2})
        [('versions.jax', '0.10.2'), ('cpus', 2)]
    """
    out: list[tuple[str, object]] = []
    stack: list[tuple[str, Any]] = [("", values)]
    while stack and len(out) < MOST_ROWS:
        name, value = stack.pop()
        if isinstance(value, Mapping) and (value or not name):
            stack += [(f"{name}.{key}" if name else str(key), item) for key, item in reversed(list(value.items()))]
        else:
            out.append((name, "none" if value is None else value))
    return out
