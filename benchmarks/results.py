"""Write the results page and the table of the README from real results: `make results`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import xxhash

from parity.errors import ParityError, ResultError
from parity.report import MARKS, bench_markdown, check_markdown, check_table, counts
from parity.results import CheckResult, read_result
from parity.storage import replace_file

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
"""What lies between them in the README is replaced."""

COMMAND = "make results"

SIGNED = "<!-- digest of the page above: {} -->"
"""Last line of the page: the results themselves are not kept, and a figure edited by hand must be noticed."""


def results_page(check: CheckResult, benchmarks: Sequence[str]) -> str:
    """Return docs/results.md: the checks, then benchmarks that are Markdown already, then a digest of both."""
    commit = check.environment.get("commit") or "of an installed package"
    commit += " with uncommitted changes" if check.environment.get("dirty") else ""
    environment = {name: value for name, value in check.environment.items() if name != "platform"}  # a kernel's build
    intro = f"Made by `{COMMAND}`, not written by hand. The checks ran on commit {commit}; benchmarks name their own."
    return signed("\n\n".join(["# Results", intro, check_markdown(check.records, environment).strip(), *benchmarks]))


def signed(text: str) -> str:
    """Return a page with its digest in the last line."""
    return f"{text}\n\n{SIGNED.format(xxhash.xxh3_64_hexdigest(text.encode()))}\n"


def is_as_written(page: str) -> bool:
    """Return whether a page is as `signed` returned it."""
    return signed(page[: page.rfind(SIGNED.partition(":")[0])].rstrip("\n")) == page


def readme_block(check: CheckResult) -> str:
    """Return what stands between the markers of the README, the markers included."""
    seconds = sum(record.seconds for record in check.records)
    lines = [
        BEGIN,
        f"`{COMMAND}` wrote this table; [docs/results.md](docs/results.md) has the environment it was made in.",
        check_table(check.records),
        f"{MARKS[check.verdict]} {check.verdict}: {counts(check.records)} ({seconds:.0f} s)",
        END,
    ]
    return "\n\n".join(lines)


def replaced(text: str, block: str, where: object) -> str:
    """Return a text with what lies between the markers replaced.

    Raises:
        ResultError: The markers do not occur, once each and in their order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ResultError(
            f"{where} needs the lines {BEGIN} and {END}, once each and in this order; put them where the "
            "table of results belongs"
        )
    return text[: text.index(BEGIN)] + block + text[text.index(END) + len(END) :]


def main(argv: Sequence[str] | None = None) -> int:
    """Write both, and return 0; 2 where a result or the README cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", type=Path, help="check.json of `parity check --report`")
    parser.add_argument("--bench", type=Path, action="append", default=[], help="of `make bench`; left out if absent")
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    options = parser.parse_args(argv)
    try:
        check = read_result(options.check)
        if not isinstance(check, CheckResult):
            raise ResultError(f"{options.check} holds benchmarks; the first file must be a result of `parity check`")
        benchmarks = [_benchmarks(path) for path in options.bench if path.exists()]
        readme = replaced(options.readme.read_text(encoding="utf-8"), readme_block(check), options.readme)
        replace_file(options.page, results_page(check, benchmarks))
        replace_file(options.readme, readme)
    except (ParityError, OSError, UnicodeDecodeError) as error:
        print(f"results: error: {error}", file=sys.stderr)
        return 2
    return 0


def _benchmarks(path: Path) -> str:
    found = read_result(path)
    if isinstance(found, CheckResult):
        raise ResultError(f"{path} holds checks, not benchmarks")
    return bench_markdown(found).strip()


if __name__ == "__main__":
    sys.exit(main())
