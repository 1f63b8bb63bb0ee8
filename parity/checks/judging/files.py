"""Files of a run: what a resumed one left against what one left that nothing stopped.

Every file counts, whatever it is called: a log, an exported model, a checkpoint. Two equal runs say what is noise:
names with times or process numbers, folders of one process.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from parity.capture import Leaf, PathLeaves, component_from_name, differing
from parity.checks.judging.evidence import NONE, Evidence, Outcome, text_of
from parity.checks.judging.further import further, lists_with_a_stretch_twice
from parity.checks.judging.process_start import ProcessStart
from parity.checks.running import CURVES, DIRECTORY, IN_ORDER, LINK, without_digits

__all__ = [
    "is_within",
    "judge_files",
    "own_folders",
]

_TIMED = "~"
"""Before the number that stands for the digits of a name, counted in the order of the names."""


def own_folders(new: Iterable[str], reference: Collection[str]) -> set[str]:
    """Return the directories that one process alone made, the outermost ones.

    Args:
        new: Files that it wrote and no process before it.
        reference: Files that the uninterrupted run wrote.

    Example:
        >>> sorted(own_folders(["logs/version_1/metrics.csv", "step_9.pt"], ["logs/version_0/metrics.csv"]))
        ['logs/version_1']
    """
    known = {folder for name in reference for folder in _folders(name)}
    alone = (next((folder for folder in _folders(name) if folder not in known), "") for name in new)
    return {folder for folder in alone if folder}


def is_within(name: str, own: Collection[str]) -> bool:
    """Return whether a file lies in a directory of one process, or in one of its kind."""
    kinds = {without_digits(folder) for folder in own}
    return any(without_digits(folder) in kinds for folder in _folders(name))


def _folders(name: str) -> list[str]:
    """Return the directories of a file, the outermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: at + 1]) for at in range(len(parts))]


def _with_plain_names(
    expected: PathLeaves, again: PathLeaves, got: PathLeaves
) -> tuple[PathLeaves, PathLeaves, PathLeaves]:
    """Return the leaves with numbers in the place of digits that two equal runs do not share in names of files.

    `log-20250131-1200.json` is another name in each run, and the first of its kind in all of them. Names in which
    equal runs differ in number stay as they are: nothing can be said of them.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        again: What an equal run left.
        got: What the resumed run left.
    """
    theirs, others, ours = _by_family(expected), _by_family(again), _by_family(got)
    timed = {f for f, names in theirs.items() if names != others.get(f) and len(names) == len(others.get(f, ()))}
    return _renamed(expected, theirs, timed), _renamed(again, others, timed), _renamed(got, ours, timed)


def _by_family(leaves: PathLeaves) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted({path.partition(":")[0] for path in leaves}):
        found[without_digits(name)].append(name)
    return found


def _renamed(leaves: PathLeaves, families: Mapping[str, list[str]], timed: Collection[str]) -> PathLeaves:
    counted = ((family, at, name) for family in timed for at, name in enumerate(families.get(family, ())))
    plain = {name: f"{family}{_TIMED}{at}" for family, at, name in counted}
    parts = ((*path.partition(":"), leaf) for path, leaf in leaves.items())
    return {f"{plain.get(name, name)}{colon}{rest}": leaf for name, colon, rest, leaf in parts}


def judge_files(
    expected: Mapping[str, Leaf],
    again: Mapping[str, Leaf],
    got: Mapping[str, Leaf],
    steps: tuple[int, int],
    own: Collection[str] = (),
    logs: Collection[str] = (),
    begun: ProcessStart | None = None,
    earlier: Collection[str] = (),
    records: Collection[str] = (),
    twice: Collection[str] = (),
) -> Outcome:
    """Compare what a resumed run left with what a run left that nothing stopped.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        again: What an equal run left.
        got: What the resumed run left.
        steps: Completed steps at the resume, and at the end.
        own: Directories that the resumed process alone made, as `own_folders` returns them. Each process writes into
            one of its own: what is in others of that kind cannot be compared.
        logs: Files that grow while a run goes: a process may begin one anew.
        begun: What is known of the beginning of the two processes; by default nothing.
        earlier: Files that the process before left at its own end, as no run does that goes on: a last save, which
            takes a place among those that a rotation keeps.
        records: Files to which records are added: a database, a stream.
        twice: Files in whose bytes a stretch stands twice, of a kind that nothing here reads.
    """
    out, begun = Outcome(), begun or ProcessStart()
    start, end = steps
    expected, again, got = _with_plain_names(expected, again, got)
    noise = set(differing(expected, again))
    names, names_again, names_got = _files(expected), _files(again), _files(got)
    families = {without_digits(name) for name in names}
    numbers = Counter(without_digits(name) for name in names)
    chance = {without_digits(name) for name in names ^ names_again}  # names that equal runs do not share
    added = {without_digits(name) for name in earlier}
    kept = Counter(without_digits(name) for name in names_got)
    timed = {name.rpartition(_TIMED)[0] for name in names_got if _TIMED in name}
    repeated = {family for family in timed if _only_repeats(family, expected, got, noise)}
    for name in sorted(names ^ names_got):
        family = without_digits(name)
        if family in chance or is_within(name, own):
            continue
        if any(one.startswith(f"{name}/") for one in names | names_got):  # a directory that is empty in one of them
            continue
        before, after = ("there", "absent") if name in names else ("absent", "there")
        item = Evidence(
            _component(name, "checkpoint.retention"), name, end, before, after, "in the folder at the end"
        )
        # what an unfinished save left, or a resumed process alone writes, is of no kind that a whole run leaves; of
        # files with a time in their names a process may write one of its own
        its_own = name not in names and (family not in families or (_TIMED in name and numbers[family] == 1))
        # a process may make a directory of its own
        its_own = its_own or (name not in names and got.get(f"{name}:", NONE).kind == DIRECTORY)
        takes_a_place = name in earlier or (family in added and kept[family] >= numbers[family])
        its_own = its_own or begun.is_of_one_process(name, names)
        again_written = name.rpartition(_TIMED)[0] in repeated and name not in names
        (out.bookkeeping if its_own or takes_a_place or again_written else out.broken).append(item)
    rewritten = {name for name in names & names_got & set(logs) if _only_the_end(name, expected, got)}
    fewer = {without_digits(name) for name in names ^ names_got if _TIMED in name}  # which is which cannot be said
    each = {without_digits(name) for name in names_got if begun.is_of_one_process(name, names)}
    stretches = lists_with_a_stretch_twice(expected, got, names & names_got & set(records))
    again_in = tuple(f"{base}[" for base in stretches)
    out.bookkeeping += [
        Evidence("checkpoint", path, end, "each record once", f"{more} of them twice", "in the folder at the end")
        for path, more in stretches.items()
    ]
    for path in sorted(p for p in differing(expected, got) if not p.startswith(again_in)):
        name, _, inside = path.partition(": ")
        name = name.rstrip(":")
        if name not in names & names_got or without_digits(name) in fewer:
            continue
        if path == f"{name}:" and path in noise:  # nothing here reads it, and two equal runs differ in it
            item = Evidence("checkpoint", path, end, "bytes in which equal runs differ", "not compared", f"in {name}")
            out.bookkeeping.append(item)
            continue
        leaf = expected.get(path)
        if inside == IN_ORDER and (leaf is None or path not in got or leaf.kind != got[path].kind):
            continue  # lines that were made again stand there twice
        if path in noise or f"{name}:" in noise or leaf is None or leaf.role in ("structure", "alias"):
            continue
        worded = inside and inside != IN_ORDER
        component = _component(name, component_from_name(inside) if worded else "checkpoint")
        item = Evidence(component, path, end, leaf.text, text_of(got.get(path)), f"in {name} at the end")
        harmless = (
            name in twice
            or (name in rewritten and inside != IN_ORDER)
            or begun.tells(name, leaf, got.get(path), start)
            or is_within(name, own)
            or (leaf.kind == "line" and begun.flips(path, got.get(path), got))
            or without_digits(name) in each  # what one process wrote of them, the other wrote into two
        )
        # a link to the newest of the folders that each process makes for itself
        harmless = harmless or (leaf.kind == LINK and _points_into(name, got.get(path), own))
        # events that were not flushed at the kill are gone: a curve with a hole is no other curve
        harmless = harmless or (name.rpartition("/")[2] == CURVES and path not in got)
        (out.bookkeeping if harmless else out.broken).append(item)
    both = {name for name in names & names_got if not is_within(name, own) and without_digits(name) not in fewer}
    got = {path: leaf for path, leaf in got.items() if not path.startswith(again_in)}
    for path, leaf, counts in further(expected, again, got, both, begun, logs):
        name, _, inside = path.partition(": ")
        component = _component(name, component_from_name(inside) if counts and inside else "checkpoint")
        when = f"in {name} at the end" if counts else "in the folder at the end"
        item = Evidence(component, path, end, "absent", leaf.text, when)
        (out.broken if counts else out.bookkeeping).append(item)
    return out


def _points_into(name: str, link: Leaf | None, own: Collection[str]) -> bool:
    """Return whether a link leads to a directory of one process."""
    said = link.digest if link else ""
    beside = said.removeprefix("FOLDER/") if said.startswith("FOLDER/") else f"{posixpath.dirname(name)}/{said}"
    target = posixpath.normpath(beside.lstrip("/"))
    return any(target == folder or target.startswith(f"{folder}/") for folder in own)


def _component(name: str, otherwise: str) -> str:
    """Return what a difference in a file is called: a word for the reader, nothing depends on it."""
    return "best" if "best" in name.lower() else otherwise


def _only_repeats(family: str, expected: PathLeaves, got: PathLeaves, noise: Collection[str]) -> bool:
    """Return whether files with times in their names are more of the same: steps made again wrote theirs once more.

    Args:
        family: Their name without digits.
        expected: What the uninterrupted run left, names with times replaced.
        got: The same of the resumed one.
        noise: Paths in which equal runs differ.
    """
    start = f"{family}{_TIMED}"
    chance = {path.partition(":")[2] for path in noise if path.startswith(start)}

    def contents_of(leaves: PathLeaves) -> list[frozenset[tuple[str, str]]]:
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for path, leaf in leaves.items():
            name, _, inside = path.partition(":")
            if name.startswith(start):
                found[name].update(() if inside in chance else ((inside, leaf.text),))
        return [frozenset(one) for one in found.values()]

    theirs, ours = contents_of(expected), contents_of(got)
    return all(ours) and len(ours) > len(theirs) and set(ours) == set(theirs)


def _only_the_end(name: str, expected: Mapping[str, Leaf], got: Mapping[str, Leaf]) -> bool:
    """Return whether a log of the resumed run has the last lines alone: each process writes it anew."""
    lines = [path for path, leaf in expected.items() if leaf.kind == "line" and path.startswith(f"{name}: ")]
    there = [path for path in lines if path in got]
    equal = all(
        got[path].same(leaf)
        for path, leaf in expected.items()
        if path in got and path.startswith(f"{name}: ") and not path.endswith(f": {IN_ORDER}")
    )
    return bool(there) and equal and there == lines[len(lines) - len(there) :]


def _files(paths: Iterable[str]) -> set[str]:
    """Return the files that leaves are in."""
    return {path.partition(":")[0] for path in paths}
