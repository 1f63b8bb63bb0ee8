"""Print, for each entry of the corpus and each mode, the verdict and the first suspect beside what is expected.

`python -m tests.corpus.report --kinds clean,losers --frameworks torch --modes inline --scenarios kill --ids moco`
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator
from typing import Any

import parity
from parity.errors import TrainerError
from tests.corpus.expected import listed, named, says_so
from tests.corpus.losers import LOSERS
from tests.corpus.placed import REACHES, trainer_of
from tests.corpus.places import PLACES
from tests.corpus.registry import loops

__all__ = ["main"]

Case = tuple[str, str, str, Any, tuple[str, ...], dict[str, Any]]
"""Kind, framework, id, function, words, arguments of `resumes`."""


def cases() -> Iterator[Case]:
    """Yield everything there is."""
    for one in loops():
        yield "clean", one.framework, one.id, one.train, (), {"steps": one.steps, "stop_at": one.stop_at}
    for loser in LOSERS:
        yield "losers", "numpy", loser.id, loser.train, loser.words, {"steps": 12, "stop_at": 7}
    for place, entry in PLACES.items():
        for framework in ("torch", "numpy"):
            for reach in REACHES:
                told = {"steps": 12, "stop_at": 7, "options": {"place": place, "reach": reach}}
                yield "places", framework, f"{place}-{framework}-{reach}", trainer_of(framework), entry.words, told


def judged(kind: str, name: str, found: Any, words: tuple[str, ...]) -> str:
    """Return `right`, or what is wrong with a verdict."""
    if kind == "clean":
        return "right" if found.verdict == "holds" else "called broken"
    if kind == "places" and name.endswith("-nothing"):
        if found.verdict != "holds":
            return "red though it reaches nothing"
        return "right" if listed(found, words) and says_so(found) else "not listed"
    if found.verdict != "broken":
        return "not found"
    return "right" if named(found, words) else "not named"


def main() -> None:
    """Print the table and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (
        ("kinds", ""),
        ("frameworks", ""),
        ("modes", "inline"),
        ("ids", ""),
        ("scenarios", "kill"),
    ):
        parser.add_argument(f"--{option}", default=default)
    asked = parser.parse_args()
    totals: collections.Counter[tuple[str, str, str]] = collections.Counter()
    print("| kind | id | mode | verdict | first suspect | |\n|---|---|---|---|---|---|")
    for kind, framework, name, train, words, told in cases():
        wanted = ((asked.kinds, kind), (asked.frameworks, framework))
        if any(given and one not in given.split(",") for given, one in wanted):
            continue
        if asked.ids and not any(part in name for part in asked.ids.split(",")):
            continue
        for mode in asked.modes.split(","):
            try:
                found = parity.resumes(train, mode=mode, scenarios=asked.scenarios, **told)
                verdict, outcome = found.verdict, judged(kind, name, found, words)
                first = f"{found.suspects[0].component}: {found.suspects[0].path}" if found.suspects else ""
            except TrainerError as error:
                verdict, outcome, first = "error", "error", str(error).splitlines()[0][:80]
            totals[kind, mode, outcome] += 1
            print(f"| {kind} | {name} | {mode} | {verdict} | {first} | {outcome} |", flush=True)
    print()
    for (kind, mode, outcome), count in sorted(totals.items()):
        print(f"{kind}, {mode}: {count} {outcome}")


if __name__ == "__main__":
    main()
