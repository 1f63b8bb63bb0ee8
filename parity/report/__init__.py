"""Results as terminal tables, Markdown, HTML and CI annotations. Renders; never computes."""

from parity.report.bench_names import arm_name, bench_name
from parity.report.bench_speeds import NOT_MEASURED, WAYS, SpeedRow, speed_rows
from parity.report.bench_words import (
    BENCH_HEADS,
    GROWTHS,
    bench_growths,
    bench_markdown,
    bench_rows,
    bench_verdict,
    bench_words,
    print_benchmarks,
    print_speeds,
    speed_markdown,
    surroundings,
)
from parity.report.comparison import print_changes, print_ratios
from parity.report.differences import print_differences, print_runs
from parity.report.equivalence import equivalence_page, jax_code
from parity.report.github import MOST_SUMMARY, annotate, append_summary, quoted
from parity.report.inspection import print_comparison, print_inspection
from parity.report.ledger import print_ledger, print_placements
from parity.report.markdown import cell, check_markdown, check_table, table
from parity.report.optimizer_row import optimizer_report
from parity.report.placed import print_split
from parity.report.policy import print_moments
from parity.report.terminal import open_console, print_table
from parity.report.words import (
    MARKS,
    clean,
    counts,
    duration,
    exact,
    flatten,
    meaning,
    number_of_checks,
    short,
    sides,
)

__all__ = [
    "BENCH_HEADS",
    "GROWTHS",
    "MARKS",
    "MOST_SUMMARY",
    "NOT_MEASURED",
    "WAYS",
    "SpeedRow",
    "annotate",
    "append_summary",
    "arm_name",
    "bench_growths",
    "bench_markdown",
    "bench_name",
    "bench_rows",
    "bench_verdict",
    "bench_words",
    "cell",
    "check_markdown",
    "check_table",
    "clean",
    "counts",
    "duration",
    "equivalence_page",
    "exact",
    "flatten",
    "jax_code",
    "meaning",
    "number_of_checks",
    "open_console",
    "optimizer_report",
    "print_benchmarks",
    "print_changes",
    "print_comparison",
    "print_differences",
    "print_inspection",
    "print_ledger",
    "print_moments",
    "print_placements",
    "print_ratios",
    "print_runs",
    "print_speeds",
    "print_split",
    "print_table",
    "quoted",
    "short",
    "sides",
    "speed_markdown",
    "speed_rows",
    "surroundings",
    "table",
]
