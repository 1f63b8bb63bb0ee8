"""The names of scenarios, the ways in which a run is stopped and resumed: one registry for every resume check."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from parity.errors import SpecError, UnknownNameError

__all__ = ["MEANINGS", "QUICK", "scenario_names"]

MEANINGS: Mapping[str, str] = {
    "kill": "killed at stop_at, resumed to the end",
    "again": "resumed, killed right after the restore, before any step, and resumed once more",
    "third": "killed a second time a few steps after the resume",
    "first-save": "killed right after the first save",
    "before-save": "killed before the first save",
    "at-zero": "stopped with a save before the first step, and resumed from that",
    "epoch-end": "killed exactly where an epoch after the first ends",
    "mid-epoch": "killed in the middle of an epoch after the first",
    "on-validation": "killed at a step that evaluates",
    "off-validation": "killed between two evaluations",
    "intervals": "other save and validation intervals, never stopped: training must not change",
    "best": "resumed from the best checkpoint",
    "older": "resumed from an older checkpoint",
    "extend": "finished at stop_at, then extended, against a run that was long from the start",
}
"""Name to what happens in the scenario. A check offers those that it can drive."""

QUICK = ("kill", "again", "third", "intervals")


def scenario_names(scenarios: str | Iterable[str], known: Collection[str] = MEANINGS) -> tuple[str, ...]:
    """Return the names of the scenarios that were asked for, each once.

    Args:
        scenarios: `quick`, `all`, names with commas between them, or names.
        known: Names that the check offers.

    Raises:
        UnknownNameError: There is no such scenario.
        SpecError: None was named.

    Example:
        >>> scenario_names("kill, third")
        ('kill', 'third')
    """
    if isinstance(scenarios, str):
        named = tuple(part.strip() for part in scenarios.split(",") if part.strip())
        scenarios = {"quick": QUICK, "all": tuple(known)}.get(scenarios, named)
    names = tuple(dict.fromkeys(scenarios))
    for name in names:
        if name not in known:
            raise UnknownNameError("scenario", name, [*known, "quick", "all"])
    if not names:
        raise SpecError("scenarios", "must name at least one scenario, got none")
    return names
