"""`parity compare`: two runs, two checkpoints of any formats, or two results; it sees which they are."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

from parity.checkpoints import (
    FILE,
    LONE,
    compare,
    describe,
    neutral_source,
    read_seal,
    run_of,
    sealed_alike,
    seems_whole,
    verify,
)
from parity.checkpoints.remote import name_of
from parity.checks import compare_runs
from parity.cli.options import add_fail_on, local_path, on_disk, place, print_found, tolerance
from parity.cli.report import compare_results
from parity.convert import (
    Comparison,
    LeafComparison,
    Tolerance,
    aligned,
    compare_sources,
    mapped,
    open_any,
    without_document,
)
from parity.errors import CheckpointError, ResultError
from parity.formats import FAMILIES, Source, is_checkpoint
from parity.mapping import read_rules
from parity.report import clean, print_comparison, print_differences, print_runs, quoted, short
from parity.results import EXIT_CODES, CheckResult, read_result
from parity.runs import RunDirectory
from parity.state import Difference

__all__ = ["add", "compare_checkpoints"]

ComparedKind = Literal["run", "checkpoint", "checkpoint of another tool", "result of checks", "file of benchmarks"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity compare`."""
    what = "a run or a checkpoint (a path, or a URL of a store), a result of `parity check`, or a file of benchmarks"
    parser.add_argument("a", type=place, metavar="A", help=f"what is compared with: {what}")
    parser.add_argument(
        "b", type=place, metavar="B", help="another of the same kind; checkpoints may differ in format"
    )
    near = "how far elements of checkpoints may be apart"
    parser.add_argument(
        "--rtol", type=tolerance, default=0.0, metavar="X", help=f"{near}, relative to B; 0 by default"
    )
    parser.add_argument("--atol", type=tolerance, default=0.0, metavar="X", help=f"{near}, absolute; 0 by default")
    parser.add_argument(
        "--rules",
        type=local_path,
        metavar="RULES.toml",
        help="A is of PyTorch and B of JAX: which parameter is which leaf (docs/formats.md)",
    )
    parser.add_argument(
        "--bytes", action="store_true", help="read every array of both checkpoints, whatever their seals say"
    )
    parser.add_argument("--all", action="store_true", help="show every leaf that differs")
    parser.add_argument("--json", action="store_true", help="print the comparison of two checkpoints as JSON")
    add_fail_on(parser)
    parser.set_defaults(run=_run, usage_error=parser.error)


def _run(options: argparse.Namespace) -> int:
    with on_disk(options.a, run=True) as options.a, on_disk(options.b, run=True) as options.b:
        return _compare(options)


def _compare(options: argparse.Namespace) -> int:
    a, b = options.a, options.b
    kinds = _kind_of(a), _kind_of(b)
    if options.fail_on is not None and kinds[0] == kinds[1] != "file of benchmarks":
        options.usage_error(f"--fail-on is for files of benchmarks; {a} is a {kinds[0]}")
    of_any_tool = kinds[0] in _CHECKPOINTS and kinds[1] in _CHECKPOINTS
    asked = options.rtol or options.atol or options.json or options.rules
    if not of_any_tool and (asked or options.all or options.bytes):
        options.usage_error(
            f"--rtol, --atol, --rules, --bytes, --all and --json are for checkpoints; {a} is a {kinds[0]}"
        )
    if of_any_tool and (kinds != ("checkpoint", "checkpoint") or asked or options.all):
        return _compare_any(options)
    if kinds[0] != kinds[1]:
        raise ResultError(f"{a} is a {kinds[0]}, {b} is a {kinds[1]}: give two of one kind")
    if kinds[0] == "run":
        comparison = compare_runs(RunDirectory(a), RunDirectory(b))
        with quoted(sys.stdout):
            print_runs(comparison, sys.stdout)
        return EXIT_CODES[comparison.verdict]
    if kinds[0] == "checkpoint":
        return compare_checkpoints(a, b, by_seal=not options.bytes)
    return compare_results(a, b, options.fail_on)


_CHECKPOINTS = ("checkpoint", "checkpoint of another tool")


def _compare_any(options: argparse.Namespace) -> int:
    """Compare two checkpoints of any formats leaf by leaf, reading both in blocks."""
    if not options.rules and _of_run(options.a) and _of_run(options.b):
        return _compare_sources(neutral_source(options.a), neutral_source(options.b), options)
    if options.rules:
        first, second = open_any(options.a), open_any(options.b)
        if FAMILIES.get(first.format, "torch") != "torch" or FAMILIES.get(second.format, "torch") != "jax":
            options.usage_error(f"--rules lead from PyTorch to JAX; A is {first.format}, B is {second.format}")
        first, second = mapped(first, read_rules(options.rules)), without_document(second)
    else:
        first, second = _opened(options.a, options.b)
    return _compare_sources(first, second, options)


def _opened(a: Path, b: Path) -> tuple[Source, Source]:
    """Open two checkpoints of any formats under one set of names, and say what was done for that."""
    first, second, note = aligned(open_any(a), open_any(b))
    if note:
        print(f"parity: {note}", file=sys.stderr)
    return first, second


def _compare_sources(first: Source, second: Source, options: argparse.Namespace) -> int:
    if options.bytes:
        first, second = replace(first, digests={}), replace(second, digests={})
    found = _compared(first, second, Tolerance(options.rtol, options.atol))
    print_found(found, print_comparison, options)
    return _code(found)


def _compared(first: Source, second: Source, tolerance: Tolerance) -> Comparison:
    for note in dict.fromkeys(first.notes + second.notes):
        print(f"parity: {clean(note)}", file=sys.stderr)
    return compare_sources(first, second, tolerance)


def _code(found: Comparison) -> int:
    if not found.compared:
        print("parity: nothing compared: no leaf of one has the name of a leaf of the other", file=sys.stderr)
        return EXIT_CODES["empty"]
    return EXIT_CODES["inconclusive" if found.undecided else "holds" if found.same else "broken"]


def compare_checkpoints(a: Path, b: Path, *, by_seal: bool = True) -> int:
    """Compare two sealed checkpoints leaf by leaf, without loading either, and print what differs.

    Where the seals say that every leaf is equal, and all files are there with their sizes, the seals decide and no
    array is read. Otherwise both are verified first, to the last byte. The seal of a checkpoint of another tool names
    no leaf, and that of a conversion arrays alone: what such a checkpoint holds is read.

    Args:
        a: The first.
        b: The second.
        by_seal: Whether equal seals decide.

    Returns:
        0 where every leaf is equal, 1 where one differs or a checkpoint is damaged, 4 where one has no seal.
    """
    if by_seal and sealed_alike(a, b):
        print(
            "every leaf is equal bit for bit by the digests of both seals: the seals and the sizes of the files were "
            "read, no array; --bytes reads them"
        )
        return EXIT_CODES["holds"]
    unread = by_seal and seems_whole(a) and seems_whole(b) and not (_complete(a) and _complete(b))
    for path in () if unread else (a, b):
        result = verify(path)
        if not result.whole:
            with quoted(sys.stdout):
                print(f"{name_of(path)} is {'unverified' if result.unsealed else 'damaged'}, so it is not compared:")
                for name, problem in describe(result.faults):
                    print(f"  {clean(name)}: {clean(problem)}")
            return EXIT_CODES["inconclusive" if result.unsealed else "broken"]
    if not (_complete(a) and _complete(b)):
        pair = _opened(a, b)
        first, second = pair if unread else (replace(one, digests={}) for one in pair)
        found = _compared(first, second, Tolerance())
        with quoted(sys.stdout):
            print_comparison(found, sys.stdout, every=False)
        return _code(found)
    differences = _sized(compare(a, b), a, b)
    with quoted(sys.stdout):
        print_differences(differences, sys.stdout)
    return EXIT_CODES["broken" if differences else "holds"]


def _of_run(path: Path) -> bool:
    """Return whether a path is a sealed checkpoint of a run, whose leaves have neutral names."""
    return path.is_dir() and os.path.lexists(path / FILE) and read_seal(path).spec_hash != LONE


def _complete(path: Path) -> bool:
    """Return whether the seal of a directory names every leaf."""
    return read_seal(path).complete


def _sized(differences: list[Difference], a: Path, b: Path) -> list[Difference]:
    """Return differences with their sizes, where both seals know where the bytes of the leaf are."""
    names = {difference.leaf for difference in differences}
    if not names:
        return differences
    first, second = (
        replace(one, tree={name: leaf for name, leaf in one.tree.items() if name in names})
        for one in (neutral_source(a), neutral_source(b))
    )
    sizes = {leaf.name: leaf for leaf in compare_sources(first, second).leaves if leaf.max_abs is not None}
    return [
        replace(one, detail=f"{one.detail}; {_size(sizes[one.leaf])}") if one.leaf in sizes else one
        for one in differences
    ]


def _size(leaf: LeafComparison) -> str:
    relative = f", {short(leaf.max_rel)} relative to the second"
    return f"{leaf.differing:,} of {leaf.elements:,} elements, by up to {short(leaf.max_abs)}{relative}"


def _kind_of(path: Path) -> ComparedKind:
    """Return what a path names.

    Raises:
        ResultError: Nothing that can be compared.
    """
    result = path.suffix == ".json" and not path.name.endswith(".index.json")  # that one names shards
    if not path.is_dir() and not result and is_checkpoint(path):
        return "checkpoint of another tool"
    if path.is_file() and not _may_be_json(path):
        try:
            open_any(path)
        except CheckpointError as error:
            raise ResultError(f"{path} is neither JSON, as a result is, nor a checkpoint: {error}") from error
    if not path.is_dir():
        return "result of checks" if isinstance(read_result(path), CheckResult) else "file of benchmarks"
    if RunDirectory(path).exists:
        return "run"
    if os.path.lexists(path / FILE) or (path.resolve().name.isdigit() and run_of(path) is not None):
        return "checkpoint"
    try:
        open_any(path)
    except CheckpointError as error:
        raise ResultError(f"{path} is neither a run, which has a spec.toml, nor a checkpoint: {error}") from error
    return "checkpoint of another tool"


def _may_be_json(path: Path) -> bool:
    """Return whether a file begins as an object of JSON; its reader says that it is empty or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"")
    except OSError:
        return True
