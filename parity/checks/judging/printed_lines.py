"""What a resumed run prints, compared with what an uninterrupted run prints.

A line that differs is listed, and is no loss by itself: a mean since the start of the process is another one after a
resume. Lines that two equal runs print differently say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from parity.capture import Leaf
from parity.checks.judging.evidence import Evidence

__all__ = ["judge_printed"]

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
