"""The judge of live runs: from the traces of a run that nothing stopped and of one that was resumed, to findings.

It compares states, leaf by leaf and bit by bit, in causal order: what differs at the first mark after a restore,
before any step was taken, was lost; what differs first at a later mark shows what was lost without being seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from parity.capture import HARD, Leaf, Snapshot
from parity.checks.live.align import align
from parity.checks.live.evidence import LATER, RANK, Evidence, Ground, Outcome, differing, evidence_of, ranked
from parity.checks.live.trace import Mark, Trace
from parity.checks.live.usage import decides

__all__ = ["judge_resumed", "judge_same"]


def judge_same(marks: Sequence[Mark], again: Sequence[Mark], changing: Collection[str]) -> Evidence | None:
    """Return where two equal runs part in what is trained; None where they do not."""
    parted: list[Evidence] = []
    for left, right in zip(marks, again, strict=False):
        if left.step != right.step:
            return Evidence("counters.step", "mark", left.step, str(left.step), str(right.step), "in an equal run")
        a, b = left.snapshot.leaves, right.snapshot.leaves
        differ = [p for p in differing(a, b) if not left.snapshot.is_dead(p)]
        trained = [p for p in differ if _trained(a.get(p) or b[p], p, changing)]
        causes = [p for p in differ if (a.get(p) or b[p]).role in ("array", "stream", "position", "gradient")]
        parted += [evidence_of(p, left, a, b, "in an equal run") for p in ranked(causes, a, b, LATER)]
        if trained:
            first = [e for e in parted if e.component.startswith(("data", "rng")) and e.path not in _SHARED]
            return (first or [evidence_of(p, left, a, b, "in an equal run") for p in ranked(trained, a, b, LATER)])[0]
    return None


_SHARED = ("random", "numpy.random")


def _trained(leaf: Leaf, path: str, changing: Collection[str]) -> bool:
    trained = leaf.role == "state" or (leaf.role == "array" and path in changing)
    return trained and leaf.component.startswith(("model", "optimizer", "ema", "schedule", "scaler"))


def judge_resumed(reference: Trace, resumed: Trace, ground: Ground, killed_at: int) -> Outcome:
    """Compare a resumed run with one that nothing stopped.

    Args:
        reference: The uninterrupted run.
        resumed: The run of the process that resumed.
        ground: What equal runs say.
        killed_at: Mark at which the process before was killed.
    """
    out = Outcome()
    if not resumed.marks:
        return _no_marks(out, reference, resumed, killed_at)
    start = resumed.marks[0]
    at, shifted = align(reference.marks, start.snapshot, start.step, ground.changing)
    if shifted:
        expected = reference.marks[at].step
        out.broken.append(
            Evidence("counters.step", "mark", start.step, str(expected), str(start.step), "at the resume")
        )
    elif start.step == reference.marks[0].step and killed_at > 0 and _saved_before(reference, killed_at):
        out.broken.append(
            Evidence("checkpoint.latest", "mark", start.step, f"step {_last_save(reference, killed_at)} or later",
                     f"step {start.step}", "at the resume")
        )  # fmt: skip
        return out
    elif start.step not in reference.steps:
        out.broken.append(
            Evidence(
                "counters.step",
                "mark",
                start.step,
                "a step of the uninterrupted run",
                str(start.step),
                "at the resume",
            )
        )
        return out
    elif (older := _second_last_save(reference, killed_at)) is not None and start.step < older:
        out.broken.append(
            Evidence(
                "checkpoint.latest",
                "mark",
                start.step,
                f"step {older} or later",
                f"step {start.step}",
                "at the resume",
            )
        )
    pairs = list(zip(reference.marks[at:], resumed.marks, strict=False))
    if not shifted:
        for left, right in pairs:
            if left.step != right.step:
                out.broken.append(
                    Evidence("counters.step", "mark", left.step, str(left.step), str(right.step), "after the resume")
                )
                break
    out.compared = len(pairs)
    _judge_pairs(out, pairs, reference, resumed, ground, at)
    expected_marks = len(reference.marks) - at
    if len(resumed.marks) != expected_marks and resumed.end == "finished" and not shifted:
        last, got = (f"the last at step {trace.steps[-1]}" for trace in (reference, resumed))
        out.broken.append(Evidence("counters.step", "marks", resumed.steps[-1], last, got, "at the end"))
    return out


def _judge_pairs(
    out: Outcome, pairs: Sequence[tuple[Mark, Mark]], reference: Trace, resumed: Trace, ground: Ground, at: int
) -> None:
    snapshots = [(left.step, left.snapshot, right.snapshot) for left, right in pairs]
    if reference.final is not None and resumed.final is not None and resumed.end == "finished":
        snapshots.append((reference.marks[-1].step + 1, reference.final, resumed.final))
    found = [_compare(left, right, ground, index) for index, (_, left, right) in enumerate(snapshots)]
    hard = [
        [p for p in differ if _is_hard(p, snapshots[i][1], snapshots[i][2], ground, first=i == 0)]
        for i, differ in enumerate(found)
    ]
    downstream = next((i for i in range(1, len(found)) if hard[i]), None)
    shown = next(
        (
            i
            for i in range(1, len(found))
            if any(_shows(p, snapshots[i][1], snapshots[i][2], ground) for p in found[i])
        ),
        None,
    )

    def evidence(index: int, paths: Sequence[str], order: Sequence[str]) -> list[Evidence]:
        step, left, right = snapshots[index]
        when = (
            ("at the resume", "one step after the resume")[index] if index < 2 else f"{index} steps after the resume"
        )
        ordered = ranked(paths, left.leaves, right.leaves, order)
        if order is RANK and _optimizer_absent(ordered, left, right):  # then its rates are lost with it
            rates = [p for p in ordered if (left.leaves.get(p) or right.leaves[p]).component in _RATES]
            ordered = [p for p in ordered if p not in rates] + rates
        return [evidence_of(p, Mark(step, left), left.leaves, right.leaves, when) for p in ordered]

    if not found:
        return
    lasting = [p for p in hard[0] if len(hard) == 1 or p in hard[1]]
    broken = bool(lasting) or downstream is not None or shown is not None
    if broken:
        first_later = min(i for i in (downstream, shown, len(found)) if i is not None)
        fleeting = [p for p in hard[0] if p not in lasting]
        lost = evidence(0, lasting, RANK) + evidence(0, fleeting, RANK)
        soft = [
            p for p in found[0] if p not in hard[0] and _may_cause(p, snapshots[0], ground, nothing_lost=not lost)
        ]
        later: list[Evidence] = []
        if first_later < len(found):
            follow = [p for p in found[first_later] if _may_follow(p, snapshots[first_later], ground)]
            later = evidence(first_later, follow, LATER)
        by_data = bool(later) and later[0].component in ("data.batch", "data.position")
        causes = evidence(0, soft, RANK)
        if by_data and not lost:
            causes = [e for e in causes if e.component == "data.position"] + [
                e for e in causes if e.component != "data.position"
            ]
            if later and not any(e.component == "data.position" for e in causes):
                causes.insert(0, later[0]._replace(component="data.position"))
        elif (
            not lost
            and later
            and not any(e.component.startswith(("data", "rng", "gradients", "ema", "model", "optim")) for e in causes)
        ):
            causes = later[:1] + causes
        out.broken += lost + causes + later
        out.first = (
            at + (0 if lost or (causes and causes[0].when == "at the resume") else first_later),
            0 if lost else first_later,
        )
    if not broken:
        _bookkeeping(out, found, hard, evidence, ground)


def _bookkeeping(
    out: Outcome,
    found: Sequence[Sequence[str]],
    hard: Sequence[Collection[str]],
    evidence: Callable[[int, Sequence[str], Sequence[str]], list[Evidence]],
    ground: Ground,
) -> None:
    """Sort what differs to the end and takes no part in training: shown to people, or decided by."""
    last = len(found) - 1
    for item in evidence(last, [p for p in found[last] if p not in hard[last] and p in ground.changing], RANK):
        if item.expected == "absent":
            continue
        if item.component == "best" or decides(_identifier(item.path), ground.files):
            out.broken.append(item)
        else:
            out.bookkeeping.append(item)


_RATES = ("schedule.lr", "optimizer.hyperparameters")


def _optimizer_absent(paths: Sequence[str], left: Snapshot, right: Snapshot) -> bool:
    """Return whether slots of the optimizer are not there at all: it was not loaded."""
    lost = [
        p for p in paths if p in left.leaves and left.leaves[p].component.startswith("optimizer.") and ".state" in p
    ]
    return any(p not in right.leaves for p in lost)


def _identifier(path: str) -> str:
    words = [w for w in path.replace("]", "").replace("'", "").replace("[", ".").split(".") if w and not w.isdigit()]
    return words[-1] if words else path


def _compare(left: Snapshot, right: Snapshot, ground: Ground, index: int) -> list[str]:
    """Return the paths in which two states differ, what is no evidence left out."""
    out = []
    for path in differing(left.leaves, right.leaves):
        if path in ground.noise:
            continue
        dead = left.is_dead(path) or right.is_dead(path)
        if dead and (index == 0 or path not in left.leaves or path not in right.leaves):
            continue
        out.append(path)
    return out


def _is_hard(path: str, left: Snapshot, right: Snapshot, ground: Ground, *, first: bool) -> bool:
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
        arrays = {leaf.role, other.role if other else "alias"} & {"state"}
        return path in left.leaves and (bool(arrays) or (tied and other is not None))
    if leaf.role == "array":
        return path in ground.changing and path in left.leaves and leaf.component != "data.batch"
    return False


def _shows(path: str, left: Snapshot, right: Snapshot, ground: Ground) -> bool:
    """Return whether a difference shows that the step before it was another one: its batch, its gradients."""
    leaf = left.leaves.get(path)
    if leaf is None or path not in right.leaves or ground.is_history(path):
        return False
    dead = left.is_dead(path)
    return leaf.role == "gradient" or (leaf.role == "array" and (dead or leaf.component == "data.batch"))


def _may_cause(path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground, *, nothing_lost: bool) -> bool:
    """Return whether a soft difference at the resume can be what later ones follow from."""
    _, left, right = snapshots
    leaf = left.leaves.get(path) or right.leaves[path]
    if path not in left.leaves or leaf.component == "loss" or ground.is_history(path):
        return False
    if leaf.role == "gradient":  # usually cleared before it is used again
        return nothing_lost
    if leaf.role == "scalar":
        return path in ground.changing or leaf.component == "model.hyperparameters"
    return leaf.role in ("position", "array")


def _may_follow(path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground) -> bool:
    """Return whether a later difference says something: a constant of the process does not."""
    leaf = snapshots[1].leaves.get(path) or snapshots[2].leaves[path]
    return not ground.is_history(path) and (path in ground.changing or leaf.role != "scalar")


def _no_marks(out: Outcome, reference: Trace, resumed: Trace, killed_at: int) -> Outcome:
    if resumed.end == "failed":
        return out
    expected = f"a mark at step {_last_save(reference, killed_at)} or later"
    out.broken.append(
        Evidence(
            "counters.step",
            "mark",
            reference.marks[killed_at].step,
            expected,
            "the function returned without a mark",
            "at the resume",
        )
    )
    return out


def _saves(reference: Trace, killed_at: int) -> list[int]:
    return [mark.step for mark in reference.marks[: killed_at + 1] if mark.saved]


def _saved_before(reference: Trace, killed_at: int) -> bool:
    return any(step > reference.marks[0].step for step in _saves(reference, killed_at))


def _last_save(reference: Trace, killed_at: int) -> int:
    return max(_saves(reference, killed_at), default=0) - 1


def _second_last_save(reference: Trace, killed_at: int) -> int | None:
    saves = _saves(reference, killed_at)
    return saves[-2] - 1 if len(saves) > 1 else None
