"""What is trained: the values of a run that can be what it learns, and which of them two runs have to agree in.

Where there is an array, what takes part in training is one. Weights in plain lists look like any other numbers: a
loss, a mean for people. The trainer says which are state, as it writes them into its checkpoint: there such a number
is found digit by digit. One that is another at the end of a resumed run is what the next save would have lost.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

from parity.capture import Leaf, PathLeaves, StateSnapshot
from parity.checks.judging import Evidence, Uninterrupted, both_runs, text_of, varying
from parity.checks.running import Mark, Trace
from parity.contract import Precision

__all__ = [
    "count_trained",
    "equal_so_far",
    "is_training",
    "lost_numbers",
    "moving_unseen",
    "precision_of",
    "put_back_later",
]  # fmt: skip

NUMBERS = re.compile(r"(numpy\.)?(float|complex)\d*|Fraction|Decimal|\w+\[\d+\] of numbers")
"""Kinds of single numbers that a trainer without arrays moves, and of long containers of them."""

MOVES = 3
"""Fewest steps in which whole numbers change that are taken for what is trained."""


def count_trained(marks: Sequence[Mark], changing: Collection[str]) -> tuple[int, list[str], bool]:
    """Return how many values of a run change that can be what it trains.

    Arrays of floating numbers; where there are none, single numbers, one of which changes in most steps: weights of a
    trainer without libraries, values of a table. A loss that a step makes for itself is not one of them: it is
    written before it is read. Where no such number changes either, whole numbers of arrays and of containers, such
    as counts of words or bits of automata, are taken for it, and that is said. Where floating numbers rest in most
    steps, as the best length that a search has found, so are those that go up and down, such as the order of a tour.

    Args:
        marks: Marks of the run, at least one.
        changing: Paths whose value changes in it.

    Returns:
        How many; what is to be said of them; whether they are single floating numbers.
    """
    states = [mark.snapshot for mark in marks]
    last = states[-1]
    there = [path for path in changing if path in last.leaves]
    arrays = sum(last.leaves[p].role in ("state", "array") and "float" in last.leaves[p].kind for p in there)
    if arrays:
        return arrays, [], False
    there = [path for path in there if not last.is_dead(path)]
    there += _new_keys(states[0].leaves, last.leaves)
    known = [p for p in there if NUMBERS.fullmatch(last.leaves[p].kind)]
    if known and _moves(known, states, len(states) / 2):
        return len(known), [], True
    # beside numbers that rest, as the best length of a search, a count alone is not taken for what is searched; a
    # table of them that change again and again is, as counts of words
    whole = [p for p in there if _is_whole(p, last.leaves)]
    if known and _again(whole, states) < TABLE:
        whole = [p for p in whole if _turns(p, states)]
    if not _moves(whole, states, MOVES):
        texts = [p for p in there if _is_text(p, last.leaves)]
        if known or _again(texts, states) < TABLE or not _moves(texts, states, MOVES):
            return 0, [], False  # a line for people changes too
        some = ", ".join(sorted(texts)[:3])
        return len(texts), [f"no number changes: texts are taken for what is trained, as {some}"], False
    most = " in most steps" if known else ""
    some = ", ".join(sorted(whole)[:3])
    said = [f"no floating value changes{most}: whole numbers are taken for what is trained, as {some}"]
    return len(whole), said, False


def _moves(paths: Sequence[str], states: Sequence[StateSnapshot], least: float) -> bool:
    """Return whether one of some values changes in enough of the steps; in few, where many change again and again."""
    pairs = [(a.leaves, b.leaves) for a, b in itertools.pairwise(states)]
    least = MOVES if _again(paths, states) >= TABLE else least
    return sum(any(p in b and not b[p].same(a.get(p)) for p in paths) for a, b in pairs) >= least


def _again(paths: Sequence[str], states: Sequence[StateSnapshot]) -> int:
    """Return how many of some values change once they are there."""
    pairs = [(a.leaves, b.leaves) for a, b in itertools.pairwise(states)]
    return sum(any(p in a and p in b and not b[p].same(a[p]) for a, b in pairs) for p in paths)


def _turns(path: str, states: Sequence[StateSnapshot]) -> bool:
    """Return whether whole numbers are an array, or one number that has gone up and down: no count of steps."""
    leaves = [leaf for one in states if (leaf := one.leaves.get(path)) is not None]
    if leaves[-1].role == "array":
        return True
    course = [int(leaf.digest) for leaf in leaves if leaf.kind == "int"]
    steps = {after > before for before, after in itertools.pairwise(course) if after != before}
    return len(steps) == 2


def _new_keys(first: PathLeaves, last: PathLeaves) -> list[str]:
    """Return the values under keys that a run has put into tables which it began with: of states, of words.

    What is added to the end of a list is a record of the past.
    """
    found = []
    for path in last.keys() - first.keys():
        for at in [at for at, letter in enumerate(path) if letter in ".["]:  # of tables in tables the outermost
            if at > 0 and f"{path[:at]}.len" in first:
                key = re.split(r"[.\[\]]", path[at + 1 :])[0]
                found += [] if key.isdigit() else [path]
                break
    return found


def _is_whole(path: str, leaves: PathLeaves) -> bool:
    """Return whether a value is one of many whole numbers: an array of them, or an element of a container.

    One by itself, such as a count of steps, says nothing of what is trained.
    """
    leaf, holder = leaves[path], path[: max(path.rfind("."), path.rfind("["))]
    if leaf.role == "array":
        return leaf.kind.startswith(("int", "uint", "bool"))
    return leaf.role == "scalar" and leaf.kind == "int" and f"{holder}.len" in leaves


def _is_text(path: str, leaves: PathLeaves) -> bool:
    """Return whether a value is one of the texts of a container, such as the pieces that words were merged from."""
    leaf, holder = leaves[path], path[: max(path.rfind("."), path.rfind("["))]
    return leaf.role == "scalar" and leaf.kind == "str" and f"{holder}.len" in leaves


TABLE = 8
"""Fewest numbers that change again, once they are there, of a table that is trained where its guess was wrong alone:
what is recorded under a key stays as it is."""

DIGITS = 6
"""Fewest digits of a number that is known again by them: 0.5 and 1.0 are in many files."""


def lost_numbers(
    reference: Trace, resumed: Trace, files: Mapping[str, Leaf], noise: Collection[str]
) -> list[Evidence]:
    """Return the numbers that a checkpoint holds and that a resumed run ends with otherwise.

    Args:
        reference: The uninterrupted run.
        resumed: The run of the process that resumed.
        files: What the folder held at the kill, decoded.
        noise: Paths that differ between equal runs.
    """
    ends = (reference.marks[-1].snapshot, resumed.marks[-1].snapshot) if resumed.marks else None
    if ends is None or reference.steps[-1] != resumed.steps[-1]:
        return []
    written = {_digits(leaf.digest) for leaf in files.values()}
    step = reference.steps[-1]
    found = []
    for path, leaf in ends[0].leaves.items():
        other = ends[1].leaves.get(path)
        differs = other is not None and other.digest != leaf.digest
        if not differs or path in noise or ends[0].is_dead(path) or not NUMBERS.fullmatch(leaf.kind):
            continue
        if _ends_alike(path, *(snapshot.leaves for snapshot in ends)):
            continue
        sampled = any(not written.isdisjoint(mark.snapshot.samples.get(path, ())) for mark in reference.marks)
        if sampled or _was_saved(path, reference.marks, written):
            found.append(Evidence(leaf.component, path, step, leaf.text, text_of(other), "at the end"))
    return found


def _ends_alike(path: str, whole: PathLeaves, resumed: PathLeaves) -> bool:
    """Return whether a number is in a list of which a resumed run holds the end, each element with its value.

    Of the records that grow with every step, what steps read is often what is saved: the last few. An element is
    another one then in each place, and none is lost.
    """
    holder = path[: max(path.rfind("["), 0)]
    if f"{holder}.len" not in whole or f"{holder}.len" not in resumed:
        return False
    left, right = _elements(holder, whole), _elements(holder, resumed)
    return 0 < len(right) < len(left) and all(a.same(b) for a, b in zip(left[-len(right) :], right, strict=True))


def _elements(holder: str, leaves: PathLeaves) -> list[Leaf]:
    found: list[Leaf] = []
    while (leaf := leaves.get(f"{holder}[{len(found)}]")) is not None:
        found.append(leaf)
    return found


def _was_saved(path: str, marks: Sequence[Mark], written: Collection[str]) -> bool:
    """Return whether one of the values that a number has had is in what was written."""
    leaves = (mark.snapshot.leaves.get(path) for mark in marks)
    values = {_digits(leaf.digest) for leaf in leaves if leaf is not None}
    return any(value in written for value in values if sum(letter.isdigit() for letter in value) >= DIGITS)


def _digits(text: str) -> str:
    """Return a number as Python writes it, without what a kind adds: quotes, or the name of a class."""
    return text.removeprefix("Decimal(").removeprefix("Fraction(").rstrip(")").strip("'\"")


def equal_so_far(reference: Trace, short: Trace, uninterrupted: Uninterrupted) -> bool:
    """Return whether a shorter run holds the same state as a longer one, up to its last mark but one.

    Where it does not, to extend it is no resume of the same training: a horizon that follows `steps` is another one.
    """
    ignored = uninterrupted.noise | uninterrupted.rounded
    for both in both_runs(reference.marks, short.marks[:-1] or short.marks):
        for path, leaf in both.left.leaves.items():
            other = both.right.leaves.get(path)
            counts = leaf.role in ("state", "array") and path in uninterrupted.changing and path not in ignored
            if counts and other is not None and not both.is_dead(path) and not leaf.same(other):
                return False
            rate = leaf.role == "state" and leaf.component.startswith(("schedule", "optimizer.hyper"))
            if rate and path not in ignored and other is not None and not leaf.same(other):
                return False
    return True


def is_training(path: str, leaf: Leaf, uninterrupted: Uninterrupted, often: Collection[str]) -> bool:
    """Return whether a leaf is trained by what it is, or changes with the steps and not with the evaluations.

    Args:
        path: Its path.
        leaf: The leaf.
        uninterrupted: What equal runs say.
        often: Arrays that change in more than half of the steps of both runs, of which one evaluates less often.
    """
    if leaf.role == "stream":
        return path in uninterrupted.streams
    if leaf.role == "state":
        return not leaf.component.startswith(("schedule", "model.mode"))
    return path in often


def put_back_later(parted: Sequence[Collection[str]]) -> set[int]:
    """Return the marks at which runs differ in what later steps wrote before they read it.

    Weights that an evaluation exchanges, and that the next step puts back when it begins: two runs that evaluate at
    other steps differ at such marks, and are equal again, bit for bit. What a step had trained with would not be. At
    the end nothing can tell; what was put back before, after as many marks, counts as such there.

    Args:
        parted: Paths of what is trained that differ, at each mark.
    """
    found: set[int] = set()
    known: set[str] = set()
    longest, begin = 0, None
    for at, paths in enumerate([*parted, ()]):
        if paths:
            begin = at if begin is None else begin
            continue
        if begin is not None:
            stretch = range(begin, at)
            here = {path for index in stretch for path in parted[index]}
            if at < len(parted) or (known >= here and len(stretch) <= longest):
                found |= {*stretch}
                known, longest = known | here, max(longest, len(stretch))
        begin = None
    return found


NARROW_FIRST: tuple[Precision, ...] = ("float16", "bfloat16", "float32", "float64")


def moving_unseen(marks: Sequence[Mark]) -> tuple[str, ...]:
    """Return what cannot be looked into and changes while the run goes, or could not even be probed.

    Args:
        marks: Marks of a run.
    """
    found = []
    for path in marks[-1].snapshot.unseen:
        probes = {mark.snapshot.probes.get(path, "") for mark in marks if path in mark.snapshot.unseen}
        if len(probes) > 1 or probes == {""}:
            found.append(path)
    return tuple(found)


def precision_of(marks: Sequence[Mark]) -> Precision:
    """Return the narrowest floating type of the parameters, or of what else was trained; Python's is float64.

    Args:
        marks: Marks of a run.
    """
    leaves = marks[-1].snapshot.leaves
    changed = [leaves[path] for path in varying(marks) if path in leaves]
    trained = [leaf for leaf in changed if leaf.role in ("state", "array")]
    params = [leaf for leaf in trained if leaf.component == "model.params"]
    names = {
        "float" if leaf.kind.endswith(" of numbers") else re.split(r"\W", leaf.kind)[0]
        for leaf in params or trained or changed
    }
    found = {"float64" if name == "float" else name for name in names}
    return next((one for one in NARROW_FIRST if one in found), "float32")
