"""Left files: the checkpoints that a resumed run left against those of a run that nothing stopped."""

from __future__ import annotations

from collections.abc import Mapping

from parity.checks.live.evidence import Evidence, Ground, Outcome, differing
from parity.contract.capture import HARD, Leaf, component_from_name

__all__ = ["judge_files"]


def judge_files(
    expected: Mapping[str, Leaf],
    again: Mapping[str, Leaf],
    got: Mapping[str, Leaf],
    ground: Ground,
    step: int,
    *,
    comparable: bool = True,
) -> Outcome:
    """Compare the checkpoints that a resumed run left with those of a run that nothing stopped.

    Args:
        expected: What the uninterrupted run left: `file: path in it` to leaf.
        again: What an equal run left.
        got: What the resumed run left.
        ground: What equal runs say.
        step: Completed steps at the end.
        comparable: Whether names can be compared: not where each process writes into a directory of its own.
    """
    out = Outcome()
    noise = set(differing(expected, again))
    noisy = {
        path.partition(":")[0]
        for path in noise
        if path.partition(":")[0]
        not in {p.partition(":")[0] for p in expected} & {p.partition(":")[0] for p in again}
    }
    names = {p.partition(":")[0] for p in expected}, {p.partition(":")[0] for p in got}
    for name in sorted((names[0] ^ names[1]) - noisy) if comparable else ():
        here = name in names[0]
        component = "best" if "best" in name else "checkpoint.retention"
        out.broken.append(
            Evidence(
                component,
                name,
                step,
                "there" if here else "absent",
                "absent" if here else "there",
                "in the folder at the end",
            )
        )
    for path in sorted(differing(expected, got)):
        name, _, inside = path.partition(": ")
        if path in noise or name.rstrip(":") not in names[0] & names[1] or ground.is_history(inside):
            continue
        leaf = expected.get(path) or got[path]
        if leaf.role in ("structure", "alias", "position") or (path not in expected):
            continue
        component = component_from_name(inside) if inside else "checkpoint"
        component = "best" if "best" in name.lower() else component
        private = inside.rpartition(".")[2].startswith("_")  # the own business of what wrote it
        item = Evidence(
            component, path, step, leaf.text, got[path].text if path in got else "absent", f"in {name} at the end"
        )
        hard = (
            leaf.role in HARD
            or leaf.role == "array"
            or component in ("best", "data.position", "counters.step", "schedule.step")
        )
        (out.broken if hard and inside and not private else out.bookkeeping).append(item)
    return out
