"""What counts: of the leaves in which two states differ, those that are evidence, and of what."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from parity.capture import HARD, Leaf, component_from_name, root_of
from parity.checks.judging.evidence import TwoStates, Uninterrupted

__all__ = [
    "compare",
    "counts_by_role",
    "is_a_length",
    "is_setting",
    "may_be_the_cause",
    "may_follow",
    "optimizer_of",
    "part_of",
    "shows_another_step",
    "without_leftovers",
]


def compare(both: TwoStates, uninterrupted: Uninterrupted, index: int) -> list[str]:
    """Return the paths in which two states differ, what is no evidence left out.

    Noise is left out. Paths that rounding moves count at the resume alone. What is written before it is read counts
    later alone, and only where both runs have it.

    Args:
        both: What the uninterrupted run and the resumed one hold.
        uninterrupted: What equal runs say.
        index: Number of the state, 0 for the one at the resume.
    """
    out = []
    for path in both.differing():
        if path in uninterrupted.noise or (index and path in uninterrupted.rounded):
            continue
        one_lacks_it = path not in both.left.leaves or path not in both.right.leaves
        if both.is_dead(path) and (index == 0 or one_lacks_it):
            continue
        out.append(path)
    return out


def counts_by_role(path: str, both: TwoStates, uninterrupted: Uninterrupted) -> bool:
    """Return whether a difference is of what takes part in training by what it is.

    Args:
        path: A path that differs; at least one of the states has it.
        both: What the uninterrupted run and the resumed one hold.
        uninterrupted: What equal runs say.
    """
    leaf, there = both.leaf(path), path in both.left.leaves
    if both.is_dead(path) or uninterrupted.is_history(path):
        return False
    if leaf.role == "stream":
        return path in uninterrupted.streams
    if leaf.role in HARD:
        return True
    other = both.right.leaves.get(path)
    if leaf.role == "alias" or (other is not None and other.role == "alias"):
        tied = leaf.component in ("model.ties", "optimizer.param_groups", "optimizer.identity", "schedule.identity")
        if other is None and leaf.role == "alias":  # what was shared has contents of its own now
            return tied and any(p.startswith((f"{path}.", f"{path}[")) for p in both.right.leaves)
        arrays = {leaf.role, other.role if other else "alias"} & {"state"}
        return there and (bool(arrays) or (tied and other is not None))
    return leaf.role == "array" and path in uninterrupted.changing and there


def shows_another_step(path: str, both: TwoStates, uninterrupted: Uninterrupted) -> bool:
    """Return whether a difference shows that the step before it was another one: its batch, its gradients.

    Args:
        path: A path that differs.
        both: What the uninterrupted run and the resumed one hold.
        uninterrupted: What equal runs say.
    """
    leaf = both.left.leaves.get(path)
    if leaf is None or path not in both.right.leaves or uninterrupted.is_history(path):
        return False
    return leaf.role == "gradient" or (leaf.role == "array" and both.left.is_dead(path))


def part_of(path: str, both: TwoStates) -> str:
    """Return the role by which a difference counts.

    A buffer of another shape is a table that is made longer on demand, as of rotary embeddings: it counts as an array
    does, by what follows from it. One of the same shape and other values, such as a running mean, is state.
    """
    left, right = both.left.leaves.get(path), both.right.leaves.get(path)
    if left is None or right is None or left.component != "model.buffers" or left.role != "state":
        return both.leaf(path).role
    return "state" if left.kind == right.kind else "array"


def may_be_the_cause(path: str, both: TwoStates, uninterrupted: Uninterrupted) -> bool:
    """Return whether a soft difference at the resume can be what later ones follow from.

    Args:
        path: A path that differs; at least one of the states has it.
        both: What the uninterrupted run and the resumed one hold at the resume.
        uninterrupted: What equal runs say.
    """
    leaf = both.leaf(path)
    # a loss is made by each step; what an object of that name keeps, such as a running mean, is none
    last = re.split(r"[^0-9A-Za-z_]+", path.rstrip("]'\""))[-1]
    is_a_loss = leaf.component == "loss" and component_from_name(last) == "loss"
    if path not in both.left.leaves or is_a_loss or uninterrupted.is_history(path):
        return False
    if leaf.role == "scalar":
        return path in uninterrupted.changing or leaf.component == "model.hyperparameters"
    return leaf.role in ("position", "array", "gradient")


def may_follow(path: str, both: TwoStates, uninterrupted: Uninterrupted) -> bool:
    """Return whether a later difference says something: a constant of the process does not.

    Args:
        path: A path that differs; at least one of the states has it.
        both: What the uninterrupted run and the resumed one hold at a later mark.
        uninterrupted: What equal runs say.
    """
    return not uninterrupted.is_history(path) and (path in uninterrupted.changing or both.leaf(path).role != "scalar")


def without_leftovers(
    found: Sequence[Sequence[str]], states: Sequence[TwoStates], uninterrupted: Uninterrupted
) -> list[list[str]]:
    """Return the paths that differ in each state, without variables that one run alone has and does not need.

    Args:
        found: Paths that differ in each state.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        uninterrupted: What equal runs say.
    """
    left_over, last = _leftovers(states), len(states) - 1
    return [
        [p for p in differ if p not in left_over and not _is_to_come(p, both, uninterrupted, last=at == last)]
        for at, (differ, both) in enumerate(zip(found, states, strict=True))
    ]


def _leftovers(states: Sequence[TwoStates]) -> set[str]:
    """Return the paths below variables that the resumed run alone has, such as a checkpoint that was loaded.

    What takes part in training by what it is counts all the same, where the resumed run changes it later.

    Args:
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    known = {root_of(path) for both in states for path in both.left.leaves}
    first = states[0].right.leaves
    found: set[str] = set()
    moved: set[str] = set()
    for both in states:
        for path, leaf in both.right.leaves.items():
            if root_of(path) not in known:
                found.add(path)
                if leaf.role in HARD and not leaf.same(first.get(path)):
                    moved.add(path)
    return found - moved


def _is_to_come(path: str, both: TwoStates, uninterrupted: Uninterrupted, *, last: bool) -> bool:
    """Return whether a variable that a step makes for itself is not there yet in the resumed run: nobody read it.

    Args:
        path: A path that differs.
        both: What the uninterrupted run and the resumed one hold.
        uninterrupted: What equal runs say.
        last: Whether it is the last state: a number that never came may be a loss there, such as a best value.
    """
    root, expected = root_of(path), both.left.leaves.get(path)
    if root not in uninterrupted.made_by_steps or (last and expected is not None and expected.role == "scalar"):
        return False
    return path not in both.right.leaves and all(root_of(one) != root for one in both.right.leaves)


def is_setting(
    path: str,
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    uninterrupted: Uninterrupted,
    *,
    begun: bool = False,
) -> bool:
    """Return whether a path is a constant of training that a resume changed: a number, another one from then on.

    A number that tells where a process began is none: 0 in a run that nothing stopped, or off by the steps done.

    Args:
        path: A path that differs at the resume.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
        begun: Whether one that is off by the steps done is asked for instead.
    """
    a, b = states[0].left.leaves.get(path), states[0].right.leaves.get(path)
    if a is None or b is None or a.role != "scalar" or path in uninterrupted.changing or path in uninterrupted.noise:
        return False
    if _CONTAINER.fullmatch(a.kind) and _CONTAINER.fullmatch(b.kind):  # a vocabulary, which is one leaf
        return not begun and all(path in differ for differ in found[:-1] or found)
    if _is_number(a) and b.kind.endswith("[]"):  # promotion to the type of an array is another than that of a number
        return not begun and states[-1].right.leaves.get(path, a).same(b)
    if not (_is_number(a) and _is_number(b)) or a.component.startswith(_PLACES):
        return False
    expected, got = _number(a), _number(b)
    # JSON gives 4 for 4.0: the same in arithmetic
    alike = expected == got and {a.kind, b.kind} == {"int", "float"}
    if alike or _is_of_a_moving_list(path, uninterrupted):
        return False
    whole = not (a.kind + b.kind).count("float")
    begins = whole and (expected == 0 or abs(abs(expected - got) - states[0].step) <= 1)  # of steps, and no rate
    lasts = all(
        path in differ and both.left.leaves.get(path, a).same(a) and both.right.leaves.get(path, b).same(b)
        for both, differ in zip(states[:-1] or states, found[:-1] or found, strict=True)
    )
    return lasts and (begins and expected != 0 if begun else not begins)


_CONTAINER = re.compile(r"\w+\[\d+\]( of numbers)?")


def _is_of_a_moving_list(path: str, uninterrupted: Uninterrupted) -> bool:
    """Return whether a path lies in a numbered element of a container whose elements change: a heap, a queue."""
    ends = [found.start() for found in re.finditer(r"\[\d+\]", path)]
    return any(other.startswith(f"{path[:end]}[") for end in ends for other in uninterrupted.changing)


def _is_number(leaf: Leaf) -> bool:
    """Return whether a leaf is a number of Python or a scalar of NumPy."""
    return leaf.kind.removeprefix("numpy.").rstrip("0123456789") in ("int", "uint", "float")


def _number(leaf: Leaf) -> float:
    """Return the value of a number; NaN of one of many digits, such as a mask of bits: it is no count."""
    try:
        return float(leaf.digest)
    except ValueError:  # a hash stands for its text
        return math.nan


_PLACES = ("counters", "data.position", "loss", "best")
"""Components of numbers that tell how far a run has come, or how well it does."""


def is_a_length(path: str, states: Sequence[TwoStates]) -> bool:
    """Return whether a whole number is the length of an array of the same object, at all marks of both runs.

    As the longest sequence that a table was made for: it says what the array's shape says, and what follows from
    that is measured.

    Args:
        path: Path of the number.
        states: What the uninterrupted run and the resumed one hold, from the resume on.
    """
    owner = path[: max(path.rfind("."), path.rfind("[")) + 1]
    sides = ([both.left.leaves for both in states], [both.right.leaves for both in states])
    beside = {
        p for p, leaf in states[-1].left.leaves.items()
        if p != path and p.startswith(owner) and leaf.kind.endswith("]") and not set(p[len(owner) :]) & {".", "["}
    }  # fmt: skip
    return any(set.intersection(*(_axes_of_length(path, array, leaves) for leaves in sides)) for array in beside)


def _axes_of_length(path: str, array: str, marks: Sequence[Mapping[str, Leaf]]) -> set[int]:
    """Return the axes of an array whose length a number is, at every mark of a run that has both; one has to.

    It is one axis at all marks: small numbers are among the lengths of many arrays.
    """
    both = [(leaves[path], leaves[array].kind) for leaves in marks if path in leaves and array in leaves]
    found: set[int] | None = None
    for number, kind in both:
        sizes = re.search(r"\[([0-9x]+)\]$", kind)
        lengths = sizes[1].split("x") if sizes and number.kind == "int" else []
        here = {axis for axis, length in enumerate(lengths) if length == number.digest}
        found = here if found is None else found & here
    return found or set()


def optimizer_of(path: str) -> str:
    """Return the path by which a trainer takes the optimizer that a slot is of; empty where the path does not say.

    `first` of `first.state[weight].exp_avg`, `self.warm` of `self.warm[0].mu.w`, the state of a chain of Optax; of an
    element of a list it is the list, which every step takes.
    """
    before, mark, _ = path.partition(".state[")
    if mark:
        return before
    found = re.match(r"(.*?)\[\d+\]", path)
    return found[1] if found else ""
