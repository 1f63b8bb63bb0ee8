"""Left files: what a resumed run left in its folder against what a run left that nothing stopped.

Every file counts, whatever it is called: a log, an exported model, a checkpoint. Two equal runs say what is noise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from parity.capture import Leaf, component_from_name, differing
from parity.checks.judging.evidence import Evidence, Outcome, text_of
from parity.checks.running import without_digits

__all__ = ["judge_files", "judge_returned"]


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
        own: Directories that the resumed process alone made. Where there are some, each process writes into one of
            its own: names cannot be compared then, nor what is in others of that kind.
        logs: Files that grow while a run goes: a process may begin one anew.
    """
    out = Outcome()
    start, end = steps
    noise = set(differing(expected, again))
    names, names_again, names_got = _files(expected), _files(again), _files(got)
    families = {without_digits(name) for name in names}
    chance = {without_digits(name) for name in names ^ names_again}  # names that hold a time or a process number
    by_process = {without_digits(name) for name in own}
    for name in sorted(names ^ names_got) if not own else ():
        if without_digits(name) in chance:
            continue
        before, after = ("there", "absent") if name in names else ("absent", "there")
        item = Evidence(
            _component(name, "checkpoint.retention"), name, end, before, after, "in the folder at the end"
        )
        # what an unfinished save left, or a resumed process alone writes, is of no kind that a whole run leaves
        (out.bookkeeping if name not in names and without_digits(name) not in families else out.broken).append(item)
    rewritten = {name for name in names & names_got & set(logs) if _only_the_end(name, expected, got)}
    for path in sorted(differing(expected, got)):
        name, _, inside = path.partition(": ")
        name = name.rstrip(":")
        if path in noise or name not in names & names_got or f"{name}:" in noise:
            continue
        leaf = expected.get(path)
        if leaf is None or leaf.role in ("structure", "alias"):
            continue
        component = _component(name, component_from_name(inside) if inside else "checkpoint")
        item = Evidence(component, path, end, leaf.text, text_of(got.get(path)), f"in {name} at the end")
        harmless = name in rewritten or _tells_the_start(leaf, got.get(path), start)
        harmless = harmless or without_digits(name.partition("/")[0]) in by_process
        (out.bookkeeping if harmless else out.broken).append(item)
    return out


def judge_returned(
    expected: Mapping[str, Leaf], again: Mapping[str, Leaf], got: Mapping[str, Leaf], end: int
) -> Outcome:
    """Compare what the function returned; arguments as of `judge_files`.

    A list of which the resumed run returns the end alone is what that process did: records, and no state.
    """
    out = Outcome()
    noise = set(differing(expected, again))
    short = [
        path.removesuffix(".len")
        for path, leaf in expected.items()
        if path.endswith(".len") and path in got and _number(got[path]) < _number(leaf)
    ]
    for path in sorted(set(differing(expected, got)) - noise):
        leaf = expected.get(path) or got[path]
        if leaf.role in ("structure", "alias"):
            continue
        item = Evidence(
            component_from_name(path), path, end, text_of(expected.get(path)), text_of(got.get(path)), "as returned"
        )
        (out.bookkeeping if path.startswith(tuple(short)) and short else out.broken).append(item)
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


def _number(leaf: Leaf) -> int:
    return int(leaf.digest) if leaf.digest.isdigit() else 0


def _files(paths: Iterable[str]) -> set[str]:
    """Return the files that leaves are in."""
    return {path.partition(":")[0] for path in paths}
