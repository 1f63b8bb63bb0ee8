"""`parity launch`: start several processes of a run on this machine."""

from __future__ import annotations

import argparse
import sys

from parity.cli.options import positive
from parity.errors import SpecError
from parity.runs import launch

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity launch`."""
    parser.add_argument(
        "--processes", required=True, type=positive, metavar="N", help="processes of the run; each drives its devices"
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- train ...", help="the command of each: `train` and its options"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if words[:1] != ["train"]:
        got = f"got {words[0]!r}" if words else "got nothing"
        raise SpecError("parity launch", f"expected -- train and its options, {got}")
    if options.processes == 1:
        raise SpecError("--processes", "expected at least 2; one process needs no launcher: parity train ...")
    return launch([sys.executable, "-m", "parity", *words], options.processes)
