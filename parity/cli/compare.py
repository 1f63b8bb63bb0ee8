"""`parity compare`: two runs, two checkpoints, or two results; it sees which they are."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Literal

from parity.checkpoints import FILE, compare, describe, verify
from parity.checks import compare_runs
from parity.cli.options import add_fail_on, local_path
from parity.cli.report import compare_results
from parity.errors import ResultError
from parity.report import clean, print_differences, print_runs, quoted
from parity.results import EXIT_CODES, CheckResult, read_result
from parity.runs import RunDirectory

__all__ = ["add", "compare_checkpoints"]

Kind = Literal["run", "checkpoint", "result of checks", "file of benchmarks"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity compare`."""
    what = "a run, a checkpoint, a result of `parity check`, or a file of benchmarks"
    parser.add_argument("a", type=local_path, metavar="A", help=f"what is compared with: {what}")
    parser.add_argument("b", type=local_path, metavar="B", help="another of the same kind")
    add_fail_on(parser)
    parser.set_defaults(run=_run, usage_error=parser.error)


def _run(options: argparse.Namespace) -> int:
    a, b = options.a, options.b
    kinds = _kind_of(a), _kind_of(b)
    if kinds[0] != kinds[1]:
        raise ResultError(f"{a} is a {kinds[0]}, {b} is a {kinds[1]}: give two of one kind")
    if options.fail_on is not None and kinds[0] != "file of benchmarks":
        options.usage_error(f"--fail-on is for files of benchmarks; {a} is a {kinds[0]}")
    if kinds[0] == "run":
        comparison = compare_runs(RunDirectory(a), RunDirectory(b))
        with quoted(sys.stdout):
            print_runs(comparison, sys.stdout)
        return EXIT_CODES[comparison.verdict]
    if kinds[0] == "checkpoint":
        return compare_checkpoints(a, b)
    return compare_results(a, b, options.fail_on)


def compare_checkpoints(a: Path, b: Path) -> int:
    """Compare two checkpoints leaf by leaf, without loading either, and print what differs.

    Both are verified first, to the last byte.

    Returns:
        0 where every leaf is equal, 1 where one differs or a checkpoint is damaged, 4 where one has no seal.
    """
    for path in (a, b):
        result = verify(path)
        if not result.whole:
            with quoted(sys.stdout):
                print(f"{path} is {'unverified' if result.unsealed else 'damaged'}, so it is not compared:")
                for name, problem in describe(result.faults):
                    print(f"  {clean(name)}: {clean(problem)}")
            return EXIT_CODES["inconclusive" if result.unsealed else "broken"]
    differences = compare(a, b)
    with quoted(sys.stdout):
        print_differences(differences, sys.stdout)
    return EXIT_CODES["broken" if differences else "holds"]


def _kind_of(path: Path) -> Kind:
    """Return what a path names.

    Raises:
        ResultError: Nothing that can be compared.
    """
    if not path.is_dir():
        return "result of checks" if isinstance(read_result(path), CheckResult) else "file of benchmarks"
    if RunDirectory(path).exists:
        return "run"
    place = path.resolve()
    if os.path.lexists(path / FILE) or (place.parent.name == "checkpoints" and place.name.isdigit()):
        return "checkpoint"
    raise ResultError(f"{path} is neither a run, which has a spec.toml, nor a checkpoint, which has a {FILE}")
