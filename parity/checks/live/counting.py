"""What counts: of the leaves in which two states differ, those that are evidence, and of what."""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.live.evidence import Ground, differing
from parity.contract.capture import HARD, Snapshot, root_of

__all__ = ["compare", "is_hard", "is_setting", "may_cause", "may_follow", "read_by_both", "shows"]


def compare(left: Snapshot, right: Snapshot, ground: Ground, index: int) -> list[str]:
    """Return the paths in which two states differ, what is no evidence left out.

    Noise is left out. Paths that rounding moves count at the resume alone. What is written before it is read counts
    later alone, and only where both runs have it.

    Args:
        left: State of the uninterrupted run.
        right: State of the resumed one.
        ground: What equal runs say.
        index: Number of the state, 0 for the one at the resume.
    """
    out = []
    for path in differing(left.leaves, right.leaves):
        if path in ground.noise or (index and path in ground.rounded):
            continue
        dead = left.is_dead(path) or right.is_dead(path)
        if dead and (index == 0 or path not in left.leaves or path not in right.leaves):
            continue
        out.append(path)
    return out


def is_hard(path: str, left: Snapshot, right: Snapshot, ground: Ground) -> bool:
    """Return whether a difference is of what takes part in training by what it is.

    Args:
        path: A path that differs; at least one of the states has it.
        left: State of the uninterrupted run.
        right: State of the resumed one.
        ground: What equal runs say.
    """
    leaf = left.leaves.get(path) or right.leaves[path]
    if left.is_dead(path) or right.is_dead(path) or ground.is_history(path):
        return False
    if leaf.role == "stream":
        return path in ground.streams
    if leaf.role in HARD:
        return True
    if leaf.role == "alias" or (path in right.leaves and right.leaves[path].role == "alias"):
        other = right.leaves.get(path)
        tied = leaf.component in ("model.ties", "optimizer.param_groups", "optimizer.identity", "schedule.identity")
        if other is None and leaf.role == "alias":  # what was shared has contents of its own now
            return tied and any(p.startswith((f"{path}.", f"{path}[")) for p in right.leaves)
        arrays = {leaf.role, other.role if other else "alias"} & {"state"}
        return path in left.leaves and (bool(arrays) or (tied and other is not None))
    if leaf.role == "array":
        return path in ground.changing and path in left.leaves and leaf.component != "data.batch"
    return False


def shows(path: str, left: Snapshot, right: Snapshot, ground: Ground) -> bool:
    """Return whether a difference shows that the step before it was another one: its batch, its gradients.

    Args:
        path: A path that differs.
        left: State of the uninterrupted run.
        right: State of the resumed one.
        ground: What equal runs say.
    """
    leaf = left.leaves.get(path)
    if leaf is None or path not in right.leaves or ground.is_history(path):
        return False
    dead = left.is_dead(path)
    return leaf.role == "gradient" or (leaf.role == "array" and (dead or leaf.component == "data.batch"))


def may_cause(path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground) -> bool:
    """Return whether a soft difference at the resume can be what later ones follow from.

    Args:
        path: A path that differs; at least one of the states has it.
        snapshots: Step, state of the uninterrupted run, state of the resumed one, at the resume.
        ground: What equal runs say.
    """
    _, left, right = snapshots
    leaf = left.leaves.get(path) or right.leaves[path]
    if path not in left.leaves or leaf.component == "loss" or ground.is_history(path):
        return False
    if leaf.role == "scalar":
        return path in ground.changing or leaf.component == "model.hyperparameters"
    return leaf.role in ("position", "array", "gradient")


def may_follow(path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground) -> bool:
    """Return whether a later difference says something: a constant of the process does not.

    Args:
        path: A path that differs; at least one of the states has it.
        snapshots: Step, state of the uninterrupted run, state of the resumed one, at a later mark.
        ground: What equal runs say.
    """
    leaf = snapshots[1].leaves.get(path) or snapshots[2].leaves[path]
    return not ground.is_history(path) and (path in ground.changing or leaf.role != "scalar")


def read_by_both(
    found: Sequence[Sequence[str]], states: Sequence[tuple[int, Snapshot, Snapshot]], ground: Ground
) -> list[list[str]]:
    """Return the paths that differ in each state, without variables that one run alone has and does not need.

    Args:
        found: Paths that differ in each state.
        states: Step, state of the uninterrupted run, state of the resumed one, from the resume on.
        ground: What equal runs say.
    """
    left_over, last = _leftovers(states), len(states) - 1
    return [
        [p for p in differ if p not in left_over and not _is_to_come(p, state, ground, last=at == last)]
        for at, (differ, state) in enumerate(zip(found, states, strict=True))
    ]


def _leftovers(states: Sequence[tuple[int, Snapshot, Snapshot]]) -> set[str]:
    """Return the paths below variables that the resumed run alone has, such as a checkpoint that was loaded.

    What takes part in training by what it is counts all the same, where the resumed run changes it later.

    Args:
        states: Step, state of the uninterrupted run, state of the resumed one, from the resume on.
    """
    known = {root_of(path) for _, left, _ in states for path in left.leaves}
    first = states[0][2].leaves
    found: set[str] = set()
    moved: set[str] = set()
    for _, _, right in states:
        for path, leaf in right.leaves.items():
            if root_of(path) not in known:
                found.add(path)
                if leaf.role in HARD and not leaf.same(first.get(path)):
                    moved.add(path)
    return found - moved


def _is_to_come(path: str, state: tuple[int, Snapshot, Snapshot], ground: Ground, *, last: bool) -> bool:
    """Return whether a variable that a step makes for itself is not there yet in the resumed run: nobody read it.

    Args:
        path: A path that differs.
        state: Step, state of the uninterrupted run, state of the resumed one.
        ground: What equal runs say.
        last: Whether it is the last state: a best value that never came is a loss there.
    """
    root, (_, left, right) = root_of(path), state
    if root not in ground.late or (last and path in left.leaves and left.leaves[path].component == "best"):
        return False
    return path not in right.leaves and all(root_of(one) != root for one in right.leaves)


def is_setting(
    path: str, states: Sequence[tuple[int, Snapshot, Snapshot]], found: Sequence[Sequence[str]], ground: Ground
) -> bool:
    """Return whether a path is a constant of training that a resume changed: a number, another one from then on.

    A number that tells where a process began is none: 0 in a run that nothing stopped, or off by the steps done.

    Args:
        path: A path that differs at the resume.
        states: Step, state of the uninterrupted run, state of the resumed one, from the resume on.
        found: Paths that differ in each.
        ground: What equal runs say.
    """
    step, left, right = states[0]
    a, b = left.leaves.get(path), right.leaves.get(path)
    if a is None or b is None or a.role != "scalar" or path in ground.changing or path in ground.noise:
        return False
    if {a.kind, b.kind} - {"int", "float"} or a.component.startswith(_PLACES):
        return False
    expected, got = float(a.digest), float(b.digest)
    begins = expected == 0 or abs(abs(expected - got) - step) <= 1
    lasts = all(
        path in differ and now.leaves.get(path, a).same(a) and then.leaves.get(path, b).same(b)
        for (_, now, then), differ in zip(states[:-1] or states, found[:-1] or found, strict=True)
    )
    return lasts and not begins


_PLACES = ("counters", "data.position", "loss", "best")
"""Components of numbers that tell how far a run has come, or how well it does."""
