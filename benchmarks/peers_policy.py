"""The table of cases against the managers people use: `python -m benchmarks.peers_policy [--write docs/policy.md]`.

Each is configured to keep the n newest and the m best by its own options. Needs the extra `peers`; with `--cases`
only the table of cases is written, which needs nothing.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.policy_loops import NoSuchOption
from parity.policy import (
    GROUPS,
    Case,
    Change,
    Implementation,
    Late,
    Mismatch,
    PolicyInMemory,
    Rules,
    Save,
    Validated,
    cases,
    replay,
)
from parity.storage import replace_file

COMMAND = "python -m benchmarks.peers_policy --write docs/policy.md"


@dataclass(frozen=True, kw_only=True)
class Manager:
    """One column."""

    name: str
    version: str
    make: Callable[[Case, Path], Callable[[Rules], Implementation]]


def ours() -> list[Manager]:
    """Return our own columns: the pure function, and each side on disk."""
    from parity import sides
    from parity.reference import OnDisk, policy_spec

    def on_disk(side: str) -> Callable[[Case, Path], Callable[[Rules], Implementation]]:
        return lambda case, home: lambda rules: OnDisk(side, sides.load(side), home, policy_spec, rules)

    return [Manager(name=f"parity, {side}", version="", make=on_disk(side)) for side in ("jax", "torch")]


def peers() -> list[Manager]:
    """Return the managers of others, as their users configure them."""
    from benchmarks import policy_lightning, policy_orbax, policy_transformers

    def orbax(options: Any) -> Callable[[Case, Path], Callable[[Rules], Implementation]]:
        return lambda case, home: lambda rules: policy_orbax.Orbax(home, rules, options)

    def lightning(case: Case, home: Path) -> Callable[[Rules], Implementation]:
        measured = all(event.metric is not None for event, _ in case.rows if isinstance(event, Save))
        between = any(isinstance(event, Validated) for event, _ in case.rows)  # then every other block is saved
        every = (2 if between else 1) * policy_lightning.BLOCK
        return lambda rules: policy_lightning.Lightning(home, rules, measured, every)

    def hugging_face(case: Case, home: Path) -> Callable[[Rules], Implementation]:
        if any(isinstance(event, Late) for event, _ in case.rows):  # before a reason that matters less
            raise NoSuchOption(policy_transformers.NO_LATE)
        return lambda rules: policy_transformers.HuggingFace(home, rules)

    return [
        Manager(name="Orbax `best_fn`", version=policy_orbax.version(), make=orbax(policy_orbax.by_best_fn)),
        Manager(
            name="Orbax `AnyPreservationPolicy`", version=policy_orbax.version(), make=orbax(policy_orbax.by_policies)
        ),
        Manager(name="Lightning `ModelCheckpoint`", version=policy_lightning.version(), make=lightning),
        Manager(name="Hugging Face `Trainer`", version=policy_transformers.version(), make=hugging_face),
    ]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one case."""

    case: Case
    verdict: str
    """`holds`, `keeps more`, `fails` or `no such option`."""
    what: str = ""


def judge(case: Case, make: Callable[[Case], Callable[[Rules], Implementation]]) -> Finding:
    """Run one case; the first difference that loses something decides, before one that only keeps more."""
    try:
        differences = replay(case, make(case))
    except NoSuchOption as error:
        return Finding(case=case, verdict="no such option", what=str(error))
    differences = _asked(case, differences)
    lost = [d for d in differences if not d.what.startswith("keeps ")]
    for verdict, some in (("fails", lost), ("keeps more", differences)):
        if some:
            event = case.text[some[0].row].partition(" |")[0]
            return Finding(case=case, verdict=verdict, what=f"{some[0].what} after `{event}`")
    return Finding(case=case, verdict="holds")


def _asked(case: Case, differences: list[Mismatch]) -> list[Mismatch]:
    """Leave out what is no fault: a best where none is kept, and what follows from a step that more kept there."""
    rules, asked = case.rules, []
    for row, (event, _) in enumerate(case.rows):
        rules = event.rules if isinstance(event, Change) else rules
        here = [d for d in differences if d.row == row]
        if any(d.what == "accepted" for d in here) and any(d.what.startswith("keeps ") for d in asked):
            return asked
        asked += [d for d in here if rules.keep_best or not d.what.startswith("best is")]
    return asked


def run(manager: Manager) -> dict[str, list[Finding]]:
    """Run every case; returns group to findings."""
    found: dict[str, list[Finding]] = {group: [] for group in GROUPS}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        for number, case in zip(count(), cases(), strict=False):
            home = Path(scratch) / str(number)
            home.mkdir()
            found[case.group].append(judge(case, partial(manager.make, home=home)))
    return found


def cell(findings: list[Finding]) -> str:
    """Return the outcome of a group: the worst verdict, of how many cases, and the first of them."""
    for verdict in ("fails", "keeps more", "no such option"):
        those = [finding for finding in findings if finding.verdict == verdict]
        if not those:
            continue
        share = "" if len(those) == len(findings) else f" ({len(those)} of {len(findings)})"
        if verdict == "no such option":
            return f"{verdict}{share}: {Counter(finding.what for finding in those).most_common(1)[0][0]}"
        return f"{verdict}{share}: {those[0].what} of *{those[0].case.name}*"
    return "holds"


def peers_table(columns: Iterable[tuple[Manager, dict[str, list[Finding]]]]) -> str:
    """Return the table of rules by managers as Markdown."""
    columns = list(columns)
    head = "| rule | " + " | ".join(manager.name for manager, _ in columns) + " |"
    lines = [head, "|---" * (len(columns) + 1) + "|"]
    for number, (group, title) in enumerate(GROUPS.items(), 1):
        lines.append(f"| {number} {title} | " + " | ".join(cell(found[group]) for _, found in columns) + " |")
    counts = []
    for _, found in columns:
        verdicts = [finding.verdict for group in found.values() for finding in group]
        names = ("holds", "keeps more", "fails", "no such option")
        counts.append(", ".join(f"{name} {n}" for name in names if (n := verdicts.count(name))))
    lines.append(f"| of {len(cases())} cases | " + " | ".join(counts) + " |")
    versions = ", ".join(dict.fromkeys(manager.version for manager, _ in columns if manager.version))
    return "\n".join([*lines, "", f"{versions}; made by `{COMMAND}`."])


def cases_table() -> str:
    """Return the table of cases as Markdown."""
    lines = ["| rule | case | policy | event → on disk after it |", "|---|---|---|---|"]
    for case in cases():
        number = list(GROUPS).index(case.group) + 1
        events = "<br>".join(f"`{line.replace(' |', ' →')}`" for line in case.text)
        lines.append(f"| {number} | {case.name} | {_words(case.rules)} | {events} |")
    return "\n".join(lines)


def _words(rules: Rules) -> str:
    parts = [rules.mode, f"latest {rules.keep_latest}", f"best {rules.keep_best}"]
    parts += [f"every {rules.keep_every}"] * bool(rules.keep_every)
    parts += [f"seconds {rules.keep_seconds:g}"] * bool(rules.keep_seconds)
    return ", ".join(parts)


def fill(page: str, name: str, text: str) -> str:
    """Return a page with what stands between two markers replaced."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"the page has no markers <!-- {name} --> and <!-- /{name} -->")
    return pattern.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)


def write_tables(path: Path, tables: Mapping[str, str]) -> None:
    """Replace the tables of a page, each between the markers of its name."""
    page = path.read_text(encoding="utf-8")
    for name, text in tables.items():
        page = fill(page, name, text)
    replace_file(path, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace what stands between the page's markers")
    parser.add_argument("--cases", action="store_true", help="the table of cases only")
    options = parser.parse_args()
    assert not [d for case in cases() for d in replay(case, PolicyInMemory)], (
        "the pure function must hold before others"
    )
    tables = {"cases": cases_table()}
    if not options.cases:
        logging.disable(logging.WARNING)
        columns = []
        for manager in [*ours(), *peers()]:
            print(f"{manager.name} ...", file=sys.stderr, flush=True)
            columns.append((manager, run(manager)))
        tables["peers"] = peers_table(columns)
    if options.write is None:
        print("\n\n".join(tables.values()))
        return
    write_tables(options.write, tables)


if __name__ == "__main__":
    main()
