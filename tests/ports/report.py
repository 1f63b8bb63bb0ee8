"""The corpus of ports under `parity port`, one line for each entry, and the counts: `python -m tests.ports.report`.

Words choose entries whose name has one of them; `--until STAGE` ends each proof there; `--full` prints the whole text
of what is not as the table says. The exit code is 1 where a wrong port is accepted or a right one refused.
"""

from __future__ import annotations

import argparse
import sys

from parity.checks.proving import STAGES
from tests.ports.corpus.catalog import CORPUS
from tests.ports.proved import Outcome, prove_entry

LIMIT = 90.0
"""Seconds that one proof may take on two cores."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="parts of names; all entries by default")
    parser.add_argument("--until", choices=STAGES)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args(words)
    outcomes = []
    for entry in CORPUS.values():
        if not options.words or any(word in entry.name for word in options.words):
            outcomes.append(prove_entry(entry, options.until))
            _show(outcomes[-1], full=options.full)
    if not outcomes:
        parser.error(f"no entry has {' or '.join(options.words)} in its name")
    return _count(outcomes)


def _show(found: Outcome, *, full: bool) -> None:
    entry = found.entry
    mark = "right" if found.right and (not entry.stage or found.named) else "place" if found.right else "OTHER"
    where = f"{found.stage or '-'} (table: {entry.stage or '-'})"
    why = found.cause or found.error
    took = f"{found.seconds:5.1f} s ({found.processor:.1f})"
    print(f"{mark}  {took}  {found.verdict:<12}  {entry.name}  |  {where}  |  {why}")
    if full and mark == "OTHER" and found.proof is not None:
        print(found.proof.text())
    sys.stdout.flush()


def _count(outcomes: list[Outcome]) -> int:
    wrong = [one for one in outcomes if one.entry.stage]
    right = [one for one in outcomes if not one.entry.stage]
    accepted = [one.entry.name for one in wrong if one.verdict == "holds"]
    refused = [one.entry.name for one in right if one.verdict == "broken"]
    named = sum(one.named for one in wrong)
    slowest = max(outcomes, key=lambda one: one.seconds)
    share = f" ({named / len(wrong):.0%})" if wrong else ""
    print()
    print(f"wrong accepted:    {len(accepted)} of {len(wrong)}  {', '.join(accepted)}")
    print(f"right refused:     {len(refused)} of {len(right)}  {', '.join(refused)}")
    for what, some in (("wrong", wrong), ("right", right)):
        for verdict in ("inconclusive", "failed"):
            names = [one.entry.name for one in some if one.verdict == verdict]
            print(f"{what} {verdict + ':':<13} {len(names)} of {len(some)}  {', '.join(names)}")
    print(f"parts as the table says: {sum(one.right for one in wrong)} of {len(wrong)}")
    print(f"cause named first: {named} of {len(wrong)}{share}")
    late = sum(one.seconds > LIMIT for one in outcomes)
    print(f"slowest:           {slowest.seconds:.1f} s, {slowest.entry.name}; {late} above {LIMIT:.0f} s")
    most = max(outcomes, key=lambda one: one.processor)
    total = sum(one.processor for one in outcomes)
    print(f"processor time:    {most.processor:.1f} s at most, {most.entry.name}; {total:.0f} s in all")
    return 1 if accepted or refused else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
