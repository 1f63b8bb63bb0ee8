"""Results as data: records of checks and benchmarks, their JSON, a strict reader, comparisons of two."""

from parity.results.benchmark_compare import BenchmarkComparison, RatioChange, RatioVerdict, compare_benchmarks
from parity.results.benchmark_document import benchmark_document, benchmark_entry
from parity.results.benchmarks import (
    BarOutcome,
    Benchmark,
    BenchmarkFile,
    Growth,
    Ratio,
    Speed,
    decode_benchmarks,
    read_benchmarks,
)
from parity.results.check_compare import VerdictChange, compare_records, compare_verdicts
from parity.results.crossing import Crossing
from parity.results.documents import document, encode, schema
from parity.results.intervals import interval, ratio_summary
from parity.results.read import CheckResult, read_result
from parity.results.record import (
    EXIT_CODES,
    VERDICTS,
    CaseOutcome,
    CheckRecord,
    Criterion,
    Curves,
    LeafChange,
    RecordedSeries,
    ResolvedSpec,
    SeriesPair,
    Validations,
    Verdict,
    overall,
)
from parity.results.resumption import Resumption
from parity.results.run_compare import RunComparison
from parity.results.suspects import Suspect, clipped

__all__ = [
    "EXIT_CODES",
    "VERDICTS",
    "BarOutcome",
    "Benchmark",
    "BenchmarkComparison",
    "BenchmarkFile",
    "CaseOutcome",
    "CheckRecord",
    "CheckResult",
    "Criterion",
    "Crossing",
    "Curves",
    "Growth",
    "LeafChange",
    "Ratio",
    "RatioChange",
    "RatioVerdict",
    "RecordedSeries",
    "ResolvedSpec",
    "Resumption",
    "RunComparison",
    "SeriesPair",
    "Speed",
    "Suspect",
    "Validations",
    "Verdict",
    "VerdictChange",
    "benchmark_document",
    "benchmark_entry",
    "clipped",
    "compare_benchmarks",
    "compare_records",
    "compare_verdicts",
    "decode_benchmarks",
    "document",
    "encode",
    "interval",
    "overall",
    "ratio_summary",
    "read_benchmarks",
    "read_result",
    "schema",
]
