"""The judge of live runs: from the traces of a run that nothing stopped and of one that was resumed, to findings.

It compares states, leaf by leaf and bit by bit, in causal order: what differs at the first mark after a restore,
before any step was taken, was lost; what differs first at a later mark shows what was lost without being seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from parity.capture import HARD, Leaf, Snapshot, component_from_name
from parity.checks.live.align import align
from parity.checks.live.trace import Mark, Trace
from parity.checks.live.usage import decides

__all__ = ["Evidence", "Ground", "Outcome", "ground_of", "judge_effects", "judge_files", "judge_resumed", "judge_same"]


class Evidence(NamedTuple):
    """One leaf that is not what it should be."""

    component: str
    path: str
    step: int
    expected: str
    """The value in the uninterrupted run, or its type and digest."""
    got: str
    when: str
    """`at the resume`, `one step after the resume`, `in state.pt at the end`."""


@dataclass(kw_only=True)
class Outcome:
    """What one comparison found."""

    broken: list[Evidence] = field(default_factory=list)
    """In the order of suspicion."""
    bookkeeping: list[Evidence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    """Marks that were compared."""
    first: tuple[int, int] | None = None
    """Marks of both runs at which the first evidence was seen: where values are to be fetched."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What is known from uninterrupted runs alone."""

    noise: frozenset[str]
    """Paths that differ between two equal runs: no evidence."""
    changing: frozenset[str]
    """Paths whose value changes while the run goes."""
    histories: tuple[str, ...]
    """Paths of containers that only grow: metrics of the past, no state."""
    files: tuple[str, ...] = ()
    """Source files of the trainer."""
    streams: frozenset[str] = frozenset()
    """Generators that training draws from."""

    def is_history(self, path: str) -> bool:
        """Return whether a path lies in a container that only grows."""
        return any(path.startswith(prefix) for prefix in self.histories)


_RANK = (
    "model.ties", "optimizer.param_order", "optimizer.param_groups", "optimizer.identity", "schedule.identity",
    "model.mode", "model.requires_grad", "settings", "schedule.step", "schedule", "scaler", "optimizer.hyperparameters",
    "optimizer.step", "optimizer.first_moment", "optimizer.second_moment", "optimizer", "model.params", "ema", "rng",
    "data.position", "data.batch", "model.buffers", "best", "gradients", "counters", "model.hyperparameters", "loss",
)  # fmt: skip
"""What cannot be a consequence at the first mark comes first."""
_LATER = (
    "data.batch", "data.position", "rng", "model.mode", "schedule", "scaler", "settings", "gradients", "loss",
    "model.buffers", "ema", "best", "optimizer", "model.params",
)  # fmt: skip
"""At a later mark: what others follow from comes first."""


def ground_of(marks: Sequence[Mark], again: Sequence[Mark], changing: frozenset[str], files: Sequence[str]) -> Ground:
    """Return what two equal runs say about every leaf."""
    noise: set[str] = set()
    for left, right in zip(marks, again, strict=False):
        noise.update(_differing(left.snapshot.leaves, right.snapshot.leaves))
    lengths: dict[str, list[int]] = {}
    for mark in marks:
        for path, leaf in mark.snapshot.leaves.items():
            if leaf.role == "structure" and path.endswith(".len"):
                lengths.setdefault(path.removesuffix(".len"), []).append(int(leaf.digest))
    grow = [p for p, n in lengths.items() if len(n) > 2 and n == sorted(n) and n[-1] > n[0] + 1]
    return Ground(
        noise=frozenset(noise),
        changing=changing,
        histories=tuple(p for p in grow if component_from_name(p) in ("loss", "counters.step", p) or _all_scalar(p, marks)),
        files=tuple(files),
        streams=frozenset(p for p in changing if marks[0].snapshot.leaves.get(p, _NONE).role == "stream"),
    )


_NONE = Leaf("scalar", "", "", "")


def _all_scalar(prefix: str, marks: Sequence[Mark]) -> bool:
    inside = [leaf for path, leaf in marks[-1].snapshot.leaves.items() if path.startswith(f"{prefix}[")]
    return all(leaf.role in ("scalar", "structure", "alias") or leaf.type.endswith("[]") for leaf in inside)


def _differing(left: Mapping[str, Leaf], right: Mapping[str, Leaf]) -> list[str]:
    return [path for path in {*left, *right} if path not in left or not left[path].same(right.get(path))]


def judge_same(marks: Sequence[Mark], again: Sequence[Mark], changing: Collection[str]) -> Evidence | None:
    """Return where two equal runs part in what is trained; None where they do not."""
    parted: list[Evidence] = []
    for left, right in zip(marks, again, strict=False):
        if left.step != right.step:
            return Evidence("counters.step", "mark", left.step, str(left.step), str(right.step), "in an equal run")
        a, b = left.snapshot.leaves, right.snapshot.leaves
        differ = [p for p in _differing(a, b) if not left.snapshot.is_dead(p)]
        trained = [p for p in differ if _trained(a.get(p) or b[p], p, changing)]
        causes = [p for p in differ if (a.get(p) or b[p]).role in ("array", "stream", "position", "gradient")]
        parted += [_evidence(p, left, a, b, "in an equal run") for p in _ranked(causes, a, b, _LATER)]
        if trained:
            first = [e for e in parted if e.component.startswith(("data", "rng")) and e.path not in _SHARED]
            return (first or [_evidence(p, left, a, b, "in an equal run") for p in _ranked(trained, a, b, _LATER)])[0]
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
        out.broken.append(Evidence("counters.step", "mark", start.step, str(expected), str(start.step), "at the resume"))
    elif start.step == reference.marks[0].step and killed_at > 0 and _saved_before(reference, killed_at):
        out.broken.append(
            Evidence("checkpoint.latest", "mark", start.step, f"step {_last_save(reference, killed_at)} or later",
                     f"step {start.step}", "at the resume")
        )  # fmt: skip
        return out
    elif start.step not in reference.steps:
        out.broken.append(Evidence("counters.step", "mark", start.step, "a step of the uninterrupted run", str(start.step), "at the resume"))
        return out
    elif (older := _second_last_save(reference, killed_at)) is not None and start.step < older:
        out.broken.append(Evidence("checkpoint.latest", "mark", start.step, f"step {older} or later", f"step {start.step}", "at the resume"))
    pairs = list(zip(reference.marks[at:], resumed.marks, strict=False))
    if not shifted:
        for left, right in pairs:
            if left.step != right.step:
                out.broken.append(Evidence("counters.step", "mark", left.step, str(left.step), str(right.step), "after the resume"))
                break
    out.compared = len(pairs)
    _judge_pairs(out, pairs, reference, resumed, ground, at)
    expected_marks = len(reference.marks) - at
    if len(resumed.marks) != expected_marks and resumed.end == "finished" and not shifted:
        out.broken.append(Evidence("counters.step", "marks", resumed.steps[-1], f"the last at step {reference.steps[-1]}",
                                   f"the last at step {resumed.steps[-1]}", "at the end"))  # fmt: skip
    return out


def _judge_pairs(out: Outcome, pairs: Sequence[tuple[Mark, Mark]], reference: Trace, resumed: Trace, ground: Ground, at: int) -> None:
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
        (i for i in range(1, len(found)) if any(_shows(p, snapshots[i][1], snapshots[i][2], ground) for p in found[i])), None
    )

    def evidence(index: int, paths: Sequence[str], order: Sequence[str]) -> list[Evidence]:
        step, left, right = snapshots[index]
        when = ("at the resume", "one step after the resume")[index] if index < 2 else f"{index} steps after the resume"
        ranked = _ranked(paths, left.leaves, right.leaves, order)
        if order is _RANK and _optimizer_absent(ranked, left, right):  # then its rates are lost with it
            rates = [p for p in ranked if (left.leaves.get(p) or right.leaves[p]).component in _RATES]
            ranked = [p for p in ranked if p not in rates] + rates
        return [_evidence(p, Mark(step, left), left.leaves, right.leaves, when) for p in ranked]

    if not found:
        return
    lasting = [p for p in hard[0] if len(hard) == 1 or p in hard[1]]
    broken = bool(lasting) or downstream is not None or shown is not None
    if broken:
        first_later = min(i for i in (downstream, shown, len(found)) if i is not None)
        fleeting = [p for p in hard[0] if p not in lasting]
        lost = evidence(0, lasting, _RANK) + evidence(0, fleeting, _RANK)
        soft = [p for p in found[0] if p not in hard[0] and _may_cause(p, snapshots[0], ground, nothing_lost=not lost)]
        later = [] if first_later == len(found) else evidence(
            first_later, [p for p in found[first_later] if _may_follow(p, snapshots[first_later], ground)], _LATER)  # fmt: skip
        by_data = bool(later) and later[0].component in ("data.batch", "data.position")
        causes = evidence(0, soft, _RANK)
        if by_data and not lost:
            causes = [e for e in causes if e.component == "data.position"] + [e for e in causes if e.component != "data.position"]
            if later and not any(e.component == "data.position" for e in causes):
                causes.insert(0, later[0]._replace(component="data.position"))
        elif not lost and later and not any(e.component.startswith(("data", "rng", "gradients", "ema", "model", "optim")) for e in causes):
            causes = later[:1] + causes
        out.broken += lost + causes + later
        out.first = (at + (0 if lost or causes and causes[0].when == "at the resume" else first_later), 0 if lost else first_later)
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
    for item in evidence(last, [p for p in found[last] if p not in hard[last] and p in ground.changing], _RANK):
        if item.expected == "absent":
            continue
        if item.component == "best" or decides(_identifier(item.path), ground.files):
            out.broken.append(item)
        else:
            out.bookkeeping.append(item)


_RATES = ("schedule.lr", "optimizer.hyperparameters")


def _optimizer_absent(paths: Sequence[str], left: Snapshot, right: Snapshot) -> bool:
    """Return whether slots of the optimizer are not there at all: it was not loaded."""
    lost = [p for p in paths if p in left.leaves and left.leaves[p].component.startswith("optimizer.") and ".state" in p]
    return any(p not in right.leaves for p in lost)


def _identifier(path: str) -> str:
    words = [w for w in path.replace("]", "").replace("'", "").replace("[", ".").split(".") if w and not w.isdigit()]
    return words[-1] if words else path


def _compare(left: Snapshot, right: Snapshot, ground: Ground, index: int) -> list[str]:
    """Return the paths in which two states differ, what is no evidence left out."""
    out = []
    for path in _differing(left.leaves, right.leaves):
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
        return path in ground.changing and path in left.leaves and not leaf.component == "data.batch"
    return False


def _shows(path: str, left: Snapshot, right: Snapshot, ground: Ground) -> bool:
    """Return whether a difference shows that the step before it was another one: its batch, its gradients."""
    leaf = left.leaves.get(path)
    if leaf is None or path not in right.leaves or ground.is_history(path):
        return False
    dead = left.is_dead(path)
    return leaf.role == "gradient" or (leaf.role == "array" and (dead or leaf.component == "data.batch"))


def _may_cause(
    path: str, snapshots: tuple[int, Snapshot, Snapshot], ground: Ground, *, nothing_lost: bool
) -> bool:
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


def _ranked(paths: Collection[str], left: Mapping[str, Leaf], right: Mapping[str, Leaf], order: Sequence[str]) -> list[str]:
    def key(path: str) -> tuple[int, str]:
        component = (left.get(path) or right[path]).component
        for at, prefix in enumerate(order):
            if component == prefix or component.startswith(f"{prefix}."):
                return at, path
        return len(order), path

    return sorted(paths, key=key)


def _evidence(path: str, mark: Mark, left: Mapping[str, Leaf], right: Mapping[str, Leaf], when: str) -> Evidence:
    a, b = left.get(path), right.get(path)
    component = (a or right[path]).component
    if component == "data.batch" and when == "at the resume":
        component = "data.position"
    return Evidence(component, path, mark.step, a.text if a else "absent", b.text if b else "absent", when)


def _no_marks(out: Outcome, reference: Trace, resumed: Trace, killed_at: int) -> Outcome:
    if resumed.end == "failed":
        return out
    expected = f"a mark at step {_last_save(reference, killed_at)} or later"
    out.broken.append(Evidence("counters.step", "mark", reference.marks[killed_at].step, expected, "the function returned without a mark", "at the resume"))
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


def judge_effects(trace: Trace, ground: Ground) -> list[Evidence]:
    """Return what statements that save or evaluate did to the state that training goes on from."""
    found: list[Evidence] = []
    for effect in trace.effects:
        changed = {p: pair for p, pair in effect.changed.items() if p not in ground.noise}
        leaves = {p: (pair[0] or pair[1]) for p, pair in changed.items()}
        parts = {leaf.component for leaf in leaves.values() if leaf is not None and leaf.role == "state"}
        if effect.what == "evaluation" and any(c.startswith("optimizer.") and c.endswith(("moment", "momentum", "step")) for c in parts):
            continue  # it trains
        for path, leaf in leaves.items():
            if leaf is None or not _counts(effect.what, path, leaf, trace, effect.step, ground):
                continue
            before, after = changed[path]
            when = f"across the {effect.what}, {effect.where}"
            found.append(Evidence(leaf.component, path, effect.step, before.text if before else "absent", after.text if after else "absent", when))
    order = {p: i for i, p in enumerate(_RANK)}
    return sorted(found, key=lambda e: min((i for p, i in order.items() if e.component.startswith(p)), default=99))


def _counts(what: str, path: str, leaf: Leaf, trace: Trace, step: int, ground: Ground) -> bool:
    if leaf.role == "stream":
        return path in ground.streams and _drawn_elsewhere(path, trace)
    if leaf.component in ("model.mode", "model.requires_grad"):
        following = next((m for m in trace.marks if m.step > step), None)
        before = next((m for m in reversed(trace.marks) if m.step <= step), None)
        return following is not None and before is not None and not before.snapshot.leaves.get(path, _NONE).same(following.snapshot.leaves.get(path))
    if leaf.role == "flag":
        return True
    if leaf.role != "state":
        return False
    if what == "save":
        return not leaf.component.startswith(("schedule", "ema"))
    return leaf.component in ("model.buffers", "model.params")


def _drawn_elsewhere(path: str, trace: Trace) -> bool:
    """Return whether a generator also moves in steps in which no watched statement moved it."""
    moved = {e.step for e in trace.effects if path in e.changed}
    watched = {e.step for e in trace.effects}
    for before, after in zip(trace.marks, trace.marks[1:], strict=False):
        a, b = before.snapshot.leaves.get(path), after.snapshot.leaves.get(path)
        if a is not None and not a.same(b) and before.step not in moved and before.step not in watched:
            return True
    return False


def judge_files(expected: Mapping[str, Leaf], again: Mapping[str, Leaf], got: Mapping[str, Leaf], ground: Ground, step: int) -> Outcome:
    """Compare the checkpoints that a resumed run left with those of a run that nothing stopped."""
    out = Outcome()
    noise = set(_differing(expected, again))
    noisy = {path.partition(":")[0] for path in noise if path.partition(":")[0] not in {p.partition(":")[0] for p in expected} & {p.partition(":")[0] for p in again}}
    names = {p.partition(":")[0] for p in expected}, {p.partition(":")[0] for p in got}
    for name in sorted((names[0] ^ names[1]) - noisy):
        here = name in names[0]
        component = "best" if "best" in name else "checkpoint.retention"
        out.broken.append(Evidence(component, name, step, "there" if here else "absent", "absent" if here else "there", "in the folder at the end"))
    for path in sorted(_differing(expected, got)):
        name, _, inside = path.partition(": ")
        if path in noise or name.rstrip(":") not in names[0] & names[1] or ground.is_history(inside):
            continue
        leaf = expected.get(path) or got[path]
        if leaf.role in ("structure", "alias", "position") or (path not in expected):
            continue
        component = component_from_name(inside) if inside else "checkpoint"
        component = "best" if "best" in name.lower() else component
        item = Evidence(component, path, step, leaf.text, got[path].text if path in got else "absent", f"in {name} at the end")
        hard = leaf.role in HARD or leaf.role == "array" or component in ("best", "data.position", "counters.step", "schedule.step")
        (out.broken if hard and inside else out.bookkeeping).append(item)
    return out
