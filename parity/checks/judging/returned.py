"""What a resumed run returned and printed, against what a run did that nothing stopped.

A line that differs is listed, and is no loss by itself: a mean since the start of the process is another one after a
resume. Lines that two equal runs print differently say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from parity.capture import Leaf, PathLeaves, component_from_name, differing
from parity.checks.judging.evidence import Evidence, Outcome, text_of

__all__ = ["judge_printed", "judge_returned"]


def judge_returned(expected: PathLeaves, again: PathLeaves, got: PathLeaves, end: int) -> Outcome:
    """Compare what the function returned.

    A list of which the resumed run returns the end alone, each element as it should be, is what that process did:
    records, and no state. Everything else counts.

    Args:
        expected: What the uninterrupted run returned.
        again: What an equal run returned.
        got: What the resumed run returned.
        end: Completed steps at the end.
    """
    out = Outcome()
    noise = set(differing(expected, again))
    ends = [base for base in _lists(expected) if _is_the_end(base, expected, got, noise)]
    for path in sorted(set(differing(expected, got)) - noise):
        leaf = expected.get(path) or got[path]
        if leaf.role in ("structure", "alias"):
            continue
        item = Evidence(
            component_from_name(path), path, end, text_of(expected.get(path)), text_of(got.get(path)), "as returned"
        )
        (out.bookkeeping if any(path.startswith(f"{base}[") for base in ends) else out.broken).append(item)
    return out


def _lists(leaves: PathLeaves) -> list[str]:
    """Return the paths of containers whose children are numbered from 0 on."""
    bases = [path.removesuffix(".len") for path in leaves if path.endswith(".len")]
    return [base for base in bases if _numbers(base, leaves) == set(range(_length(base, leaves)))]


def _is_the_end(base: str, expected: PathLeaves, got: PathLeaves, noise: Collection[str]) -> bool:
    """Return whether a list is shorter than it should be, and holds the last elements."""
    if f"{base}.len" not in got:
        return False
    apart = _length(base, expected) - _length(base, got)
    if apart <= 0 or _numbers(base, got) != set(range(_length(base, got))):
        return False
    inside = re.compile(re.escape(base) + r"\[(\d+)\](.*)", re.DOTALL)
    moved = {
        f"{base}[{int(found[1]) + apart}]{found[2]}": leaf
        for path, leaf in got.items()
        if (found := inside.fullmatch(path)) is not None
    }
    return all(
        leaf.role in ("structure", "alias") or path in noise or (path in expected and leaf.same(expected[path]))
        for path, leaf in moved.items()
    )


def _numbers(base: str, leaves: PathLeaves) -> set[int]:
    inside = re.compile(re.escape(base) + r"\[(\d+)\]")
    return {int(found[1]) for path in leaves if (found := inside.match(path)) is not None}


def _length(base: str, leaves: PathLeaves) -> int:
    digest = leaves[f"{base}.len"].digest
    return int(digest) if digest.isdigit() else 0


MOST = 3
"""Differences that are listed."""


def judge_printed(expected: Mapping[str, Leaf], again: Mapping[str, Leaf], got: Mapping[str, Leaf],
                  end: int) -> list[Evidence]:  # fmt: skip
    """Return numbers that a resumed run printed in a line that the uninterrupted run printed too, with others.

    Args:
        expected: What the uninterrupted run printed.
        again: What an equal run printed, as far as it came.
        got: What the resumed run printed.
        end: Completed steps at the end.
    """
    noise = {_form(path) for path, leaf in expected.items() if path in again and not again[path].same(leaf)}
    differ = [
        path
        for path, leaf in expected.items()
        if leaf.kind == "number" and path in got and not got[path].same(leaf) and _form(path) not in noise
    ]
    return [
        Evidence("printed", f"printed: {path}", end, expected[path].text, got[path].text, "in what is printed")
        for path in differ[:MOST]
    ]


def _form(path: str) -> str:
    """Return a line's path without its own number, as all lines of its kind have it."""
    return re.sub(r"\d+", "#", path)
