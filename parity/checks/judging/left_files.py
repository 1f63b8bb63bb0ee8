"""Left files: what a resumed run left in its folder against what a run left that nothing stopped.

Every file counts, whatever it is called: a log, an exported model, a checkpoint. Two equal runs say what is noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from parity.capture import Leaf, component_from_name, differing
from parity.checks.judging.evidence import Evidence, Outcome, text_of
from parity.checks.judging.file_names import TIMED, is_within, with_plain_names
from parity.checks.running import CURVES, without_digits

__all__ = ["judge_files"]


def judge_files(
    expected: Mapping[str, Leaf],
    again: Mapping[str, Leaf],
    got: Mapping[str, Leaf],
    steps: tuple[int, int],
    own: Collection[str] = (),
    logs: Collection[str] = (),
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
    """
    out = Outcome()
    start, end = steps
    expected, again, got = with_plain_names(expected, again, got)
    noise = set(differing(expected, again))
    names, names_again, names_got = _files(expected), _files(again), _files(got)
    families = {without_digits(name) for name in names}
    numbers = Counter(without_digits(name) for name in names)
    chance = {without_digits(name) for name in names ^ names_again}  # names that equal runs do not share
    for name in sorted(names ^ names_got):
        family = without_digits(name)
        if family in chance or is_within(name, own):
            continue
        before, after = ("there", "absent") if name in names else ("absent", "there")
        item = Evidence(
            _component(name, "checkpoint.retention"), name, end, before, after, "in the folder at the end"
        )
        # what an unfinished save left, or a resumed process alone writes, is of no kind that a whole run leaves; of
        # files with a time in their names a process may write one of its own
        its_own = name not in names and (family not in families or (TIMED in name and numbers[family] == 1))
        (out.bookkeeping if its_own else out.broken).append(item)
    rewritten = {name for name in names & names_got & set(logs) if _only_the_end(name, expected, got)}
    fewer = {without_digits(name) for name in names ^ names_got if TIMED in name}  # which is which cannot be said
    for path in sorted(differing(expected, got)):
        name, _, inside = path.partition(": ")
        name = name.rstrip(":")
        if name not in names & names_got or without_digits(name) in fewer:
            continue
        if path == f"{name}:" and path in noise:  # nothing here reads it, and two equal runs differ in it
            item = Evidence("checkpoint", path, end, "bytes in which equal runs differ", "not compared", f"in {name}")
            out.bookkeeping.append(item)
            continue
        leaf = expected.get(path)
        if path in noise or f"{name}:" in noise or leaf is None or leaf.role in ("structure", "alias"):
            continue
        component = _component(name, component_from_name(inside) if inside else "checkpoint")
        item = Evidence(component, path, end, leaf.text, text_of(got.get(path)), f"in {name} at the end")
        harmless = name in rewritten or _tells_the_start(leaf, got.get(path), start) or is_within(name, own)
        # events that were not flushed at the kill are gone: a curve with a hole is no other curve
        harmless = harmless or (name.rpartition("/")[2] == CURVES and path not in got)
        (out.bookkeeping if harmless else out.broken).append(item)
    return out


def _component(name: str, otherwise: str) -> str:
    """Return what a difference in a file is called: a word for the reader, nothing depends on it."""
    return "best" if "best" in name.lower() else otherwise


def _only_the_end(name: str, expected: Mapping[str, Leaf], got: Mapping[str, Leaf]) -> bool:
    """Return whether a log of the resumed run has the last lines alone: each process writes it anew."""
    lines = [path for path, leaf in expected.items() if leaf.kind == "line" and path.startswith(f"{name}: ")]
    there = [path for path in lines if path in got]
    equal = all(
        got[path].same(leaf) for path, leaf in expected.items() if path in got and path.startswith(f"{name}: ")
    )
    return bool(there) and equal and there == lines[len(lines) - len(there) :]


def _tells_the_start(leaf: Leaf, other: Leaf | None, start: int) -> bool:
    """Return whether a value says where a process began: nothing in a run that nothing stopped, else the step."""
    if other is None or leaf.digest not in ("0", "None", "False"):
        return False
    return other.digest in (str(start), "True") or (leaf.digest == "None" and other.kind == "str")


def _files(paths: Iterable[str]) -> set[str]:
    """Return the files that leaves are in."""
    return {path.partition(":")[0] for path in paths}
