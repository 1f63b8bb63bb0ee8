"""`parity report`: a result of checks or benchmarks as a table, a page or Markdown; or two of them compared."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from parity.cli.bench import compare_files
from parity.cli.options import local_path
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
    print_table,
    quoted,
)
from parity.report.html import bench_page, check_page
from parity.results import (
    EXIT_CODES,
    BenchmarkFile,
    CheckResult,
    Verdict,
    compare_environments,
    compare_records,
    compare_verdicts,
    read_result,
)
from parity.storage import replace_file

__all__ = ["add"]


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
    parser.set_defaults(run=_run, usage_error=parser.error)


def _run(options: argparse.Namespace) -> int:
    if (options.result is None) == (options.compare is None):
        options.usage_error("give either RESULT.json or --compare OLD NEW")
    if options.compare:
        if options.html or options.markdown:
            options.usage_error("--compare prints a table; --html and --markdown are for one result")
        return _compare(*options.compare)
    for option, file in (("--html", options.html), ("--markdown", options.markdown)):
        if file is not None and (not file.name or file.is_dir()):
            options.usage_error(f"{option} {file} is a directory; name a file in it, like {file / 'result'}")
        if file is not None and file.exists() and not file.is_file():  # a rename onto it would remove /dev/null
            options.usage_error(f"{option} {file} is no regular file, and would be replaced by one; name another")
    return EXIT_CODES[_render(options.result, options.html, options.markdown)]


def _render(path: Path, html: Path | None, markdown: Path | None) -> Verdict:
    """Write what was asked for, or print the table; return the verdict of the result."""
    result = read_result(path)
    if isinstance(result, CheckResult):
        verdict, text = result.verdict, check_markdown(result.records, result.environment)
        page, show = partial(check_page, result.records, result.environment), partial(print_table, result.records)
    else:
        verdict, text = bench_verdict(result), bench_markdown(result)
        page, show = partial(bench_page, result), partial(print_benchmarks, result)
    if html:
        replace_file(html, page())
    if markdown:
        replace_file(markdown, text)
    if not (html or markdown):
        with quoted(sys.stdout):
            show(sys.stdout)
    if isinstance(result, CheckResult):
        annotate(result.records, sys.stdout)
    append_summary(text)
    return verdict


def _compare(old: Path, new: Path) -> int:
    """Compare two results; benchmarks are judged as `parity bench compare` does by default."""
    before, after = read_result(old), read_result(new)
    if isinstance(before, CheckResult) and isinstance(after, CheckResult):
        for warning in compare_environments(before.environment, after.environment):
            print(f"parity: warning: {clean(warning)}", file=sys.stderr)
        changes = compare_records(before.records, after.records)
        verdict = compare_verdicts(changes)
        with quoted(sys.stdout):
            print_changes(changes, verdict, sys.stdout)
        return EXIT_CODES[verdict]
    if isinstance(before, BenchmarkFile) and isinstance(after, BenchmarkFile):
        return compare_files(old, new)
    first, second = ("checks" if isinstance(result, CheckResult) else "benchmarks" for result in (before, after))
    raise ResultError(f"{old} holds {first}, {new} holds {second}: give two results of one kind")
