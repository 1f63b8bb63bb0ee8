"""What counts: of the leaves in which two states differ, those that are evidence, and of what."""

from __future__ import annotations

from parity.capture import HARD, Snapshot
from parity.checks.live.evidence import Ground, differing

__all__ = ["compare", "is_hard", "may_cause", "may_follow", "shows"]


def compare(left: Snapshot, right: Snapshot, ground: Ground, index: int) -> list[str]:
    """Return the paths in which two states differ, what is no evidence left out."""
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
    """Return whether a difference is of what takes part in training by what it is."""
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
    """Return whether a difference shows that the step before it was another one: its batch, its gradients."""
    leaf = left.leaves.get(path)
    if leaf is None or path not in right.leaves or ground.is_history(path):
        return False
    dead = left.is_dead(path)
    return leaf.role == "gradient" or (leaf.role == "array" and (dead or leaf.component == "data.batch"))


def may_cause(path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground) -> bool:
    """Return whether a soft difference at the resume can be what later ones follow from."""
    _, left, right = snapshots
    leaf = left.leaves.get(path) or right.leaves[path]
    if path not in left.leaves or leaf.component == "loss" or ground.is_history(path):
        return False
    if leaf.role == "scalar":
        return path in ground.changing or leaf.component == "model.hyperparameters"
    return leaf.role in ("position", "array", "gradient")


def may_follow(path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground) -> bool:
    """Return whether a later difference says something: a constant of the process does not."""
    leaf = snapshots[1].leaves.get(path) or snapshots[2].leaves[path]
    return not ground.is_history(path) and (path in ground.changing or leaf.role != "scalar")
