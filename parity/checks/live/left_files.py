"""Left files: the checkpoints that a resumed run left against those of a run that nothing stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parity.checks.live.evidence import Evidence, Ground, Outcome, differing, text_of
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
    names, names_got = _files(expected), _files(got)
    noisy = _files(noise) - (names & _files(again))
    for name in sorted((names ^ names_got) - noisy) if comparable else ():
        component = "best" if "best" in name else "checkpoint.retention"
        before, after = ("there", "absent") if name in names else ("absent", "there")
        out.broken.append(Evidence(component, name, step, before, after, "in the folder at the end"))
    for path in sorted(differing(expected, got)):
        name, _, inside = path.partition(": ")
        if path in noise or name.rstrip(":") not in names & names_got or ground.is_history(inside):
            continue
        leaf = expected.get(path)
        if leaf is None or leaf.role in ("structure", "alias", "position"):
            continue
        component = component_from_name(inside) if inside else "checkpoint"
        component = "best" if "best" in name.lower() else component
        private = inside.rpartition(".")[2].startswith("_")  # the own business of what wrote it
        item = Evidence(component, path, step, leaf.text, text_of(got.get(path)), f"in {name} at the end")
        hard = (
            leaf.role in HARD
            or leaf.role == "array"
            or component in ("best", "data.position", "counters.step", "schedule.step")
        )
        (out.broken if hard and inside and not private else out.bookkeeping).append(item)
    return out


def _files(paths: Iterable[str]) -> set[str]:
    """Return the files that leaves are in."""
    return {path.partition(":")[0] for path in paths}
