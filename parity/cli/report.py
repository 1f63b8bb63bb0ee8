"""`parity report`: a result of checks or benchmarks as a table, a page or Markdown; or two of them compared."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from parity.cli.options import add_fail_on, local_path, require_file
from parity.environment import compare_environments
from parity.errors import ResultError
from parity.report import (
    annotate,
    append_summary,
    bench_markdown,
    bench_verdict,
    check_markdown,
    clean,
    print_benchmarks,
    print_changes,
    print_ratios,
    print_table,
    quoted,
)
from parity.report.html import bench_page, check_page
from parity.results import (
    EXIT_CODES,
    BenchmarkFile,
    CheckResult,
    Verdict,
    compare_benchmarks,
    compare_records,
    compare_verdicts,
    read_result,
)
from parity.storage import replace_file

__all__ = ["ALLOWED", "add", "compare_results"]

ALLOWED = 0.05
"""Relative change of a ratio that passes where `--fail-on` is not given."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parity report`."""
    parser.add_argument(
        "result",
        nargs="?",
        type=local_path,
        metavar="RESULT.json",
        help="of `parity check --report` or --json, or of `pytest --benchmark-json`",
    )
    parser.add_argument(
        "--html", type=local_path, metavar="FILE", help="write one page that needs no network and no script"
    )
    parser.add_argument("--markdown", type=local_path, metavar="FILE", help="write Markdown")
    parser.add_argument(
        "--compare", type=local_path, nargs=2, metavar=("OLD", "NEW"), help="compare two results of one kind"
    )
    add_fail_on(parser)
    parser.set_defaults(run=_run, usage_error=parser.error)


def _run(options: argparse.Namespace) -> int:
    if (options.result is None) == (options.compare is None):
        options.usage_error("give either RESULT.json or --compare OLD NEW")
    if options.compare:
        if options.html or options.markdown:
            options.usage_error("--compare prints a table; --html and --markdown are for one result")
        old, new = options.compare
        return compare_results(old, new, options.fail_on)
    if options.fail_on is not None:
        options.usage_error("--fail-on is for --compare OLD NEW")
    for option, file in (("--html", options.html), ("--markdown", options.markdown)):
        if file is not None:
            require_file(option, file, options.usage_error)
    return EXIT_CODES[_render(options.result, options.html, options.markdown)]


def _render(path: Path, html: Path | None, markdown: Path | None) -> Verdict:
    """Write what was asked for, or print the table; return the verdict of the result."""
    result = read_result(path)
    if isinstance(result, CheckResult):
        verdict, text = result.verdict, check_markdown(result.records, result.environment)
        page = partial(check_page, result.records, result.environment)
        show = partial(print_table, result.records, environment_of=result.environment)
    else:
        verdict, text = bench_verdict(result), bench_markdown(result)
        page, show = partial(bench_page, result), partial(print_benchmarks, result)
    for file, content in ((html, page), (markdown, lambda: text)):
        if file:
            replace_file(file, content())
            print(f"wrote {file} ({verdict})")
    if not (html or markdown):
        with quoted(sys.stdout):
            show(sys.stdout)
    if isinstance(result, CheckResult):
        annotate(result.records, sys.stdout)
    append_summary(text)
    return verdict


def compare_results(old: Path, new: Path, allowed: float | None) -> int:
    """Compare two results of one kind and print what changed.

    Args:
        old: What is compared with.
        new: What may have got worse.
        allowed: Relative change of a ratio that passes, for benchmarks; None for any kind of result.

    Returns:
        0 where nothing got worse, 1 where something did, 4 where a check is gone, 5 with nothing to compare.

    Raises:
        ResultError: A file is no result, the two are of different kinds, or checks where benchmarks are expected.
    """
    before, after = read_result(old), read_result(new)
    if isinstance(before, BenchmarkFile) and isinstance(after, BenchmarkFile):
        comparison = compare_benchmarks(before, after, ALLOWED if allowed is None else allowed)
        _warn(comparison.warnings)
        with quoted(sys.stdout):
            print_ratios(comparison, ALLOWED if allowed is None else allowed, sys.stdout)
        return EXIT_CODES[comparison.verdict]
    if isinstance(before, CheckResult) and isinstance(after, CheckResult) and allowed is None:
        _warn(compare_environments(before.environment, after.environment))
        changes = compare_records(before.records, after.records)
        verdict = compare_verdicts(changes)
        with quoted(sys.stdout):
            print_changes(changes, verdict, sys.stdout)
        return EXIT_CODES[verdict]
    first, second = ("checks" if isinstance(result, CheckResult) else "benchmarks" for result in (before, after))
    expected = "two results of one kind" if first != second else "two files of benchmarks, whose ratios are judged"
    raise ResultError(f"{old} holds {first}, {new} holds {second}: give {expected}")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"parity: warning: {clean(warning)}", file=sys.stderr)
