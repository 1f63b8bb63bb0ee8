"""Results as terminal tables, Markdown, HTML and CI annotations. Renders; never computes."""

from parity.report.bench_words import bench_markdown, bench_verdict, bench_words, print_benchmarks, surroundings
from parity.report.comparison import print_changes, print_ratios
from parity.report.github import MOST_SUMMARY, annotate, append_summary, quoted
from parity.report.markdown import cell, check_markdown, check_table, table
from parity.report.policy import print_moments
from parity.report.terminal import print_table
from parity.report.words import MARKS, clean, counts, exact, flatten, meaning, short, sides

__all__ = [
    "MARKS",
    "MOST_SUMMARY",
    "annotate",
    "append_summary",
    "bench_markdown",
    "bench_verdict",
    "bench_words",
    "cell",
    "check_markdown",
    "check_table",
    "clean",
    "counts",
    "exact",
    "flatten",
    "meaning",
    "print_benchmarks",
    "print_changes",
    "print_moments",
    "print_ratios",
    "print_table",
    "quoted",
    "short",
    "sides",
    "surroundings",
    "table",
]
