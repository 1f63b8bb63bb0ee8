"""What checks and benchmarks return, as data: records, their JSON, reading it back untrusted, comparing two."""

from parity.results.benchmark_compare import Change, Comparison, RatioVerdict, compare
from parity.results.benchmarks import Benchmark, BenchmarkFile, Growth, Ratio, read_benchmarks
from parity.results.check_compare import VerdictChange, compare_environments, compare_records, compare_verdicts
from parity.results.document import describe_environment, document, encode, schema
from parity.results.read import CheckResult, read_result
from parity.results.record import (
    EXIT_CODES,
    CheckRecord,
    Criterion,
    Curves,
    Pair,
    ResolvedSpec,
    Series,
    Validations,
    Verdict,
    overall,
)

__all__ = [
    "EXIT_CODES",
    "Benchmark",
    "BenchmarkFile",
    "Change",
    "CheckRecord",
    "CheckResult",
    "Comparison",
    "Criterion",
    "Curves",
    "Growth",
    "Pair",
    "Ratio",
    "RatioVerdict",
    "ResolvedSpec",
    "Series",
    "Validations",
    "Verdict",
    "VerdictChange",
    "compare",
    "compare_environments",
    "compare_records",
    "compare_verdicts",
    "describe_environment",
    "document",
    "encode",
    "overall",
    "read_benchmarks",
    "read_result",
    "schema",
]
