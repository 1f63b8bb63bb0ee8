"""Names of files that equal runs do not share: with times or process numbers, or in folders of one process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from parity.capture import PathLeaves
from parity.checks.running import without_digits

__all__ = ["TIMED", "is_within", "own_folders", "with_plain_names"]

TIMED = "~"
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


def with_plain_names(
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
    plain = {name: f"{family}{TIMED}{at}" for family, at, name in counted}
    parts = ((*path.partition(":"), leaf) for path, leaf in leaves.items())
    return {f"{plain.get(name, name)}{colon}{rest}": leaf for name, colon, rest, leaf in parts}
