"""Names of benchmarks that people would say, from the identifiers of their tests."""

from __future__ import annotations

import re

from parity.results import Benchmark

__all__ = ["arm_name", "bench_name", "title_of"]

_PROPER = {"jax": "JAX", "torch": "PyTorch", "xla": "XLA"}
"""Words of identifiers that are written otherwise in a sentence."""

_TEST = re.compile(r"(?:.*::)?(test_\w+?)(?:\[(.*)\])?(?: (.*))?", re.DOTALL)
"""Path of the test (with two colons), its function, the values of its parameters, a label."""


def title_of(identifier: str) -> str:
    """Return the name of a test with its parameters in words; anything that is no test is returned as it is.

    Example:
        >>> title_of("benchmarks/test_throughput.py::test_jax_twin_against_a_bare_scan[mlp-digits]")
        'JAX twin against a bare scan: mlp-digits'
        >>> title_of("test_torch_twin_against[lightning]"), title_of("test_restore[100 M-torch] 100 M")
        ('PyTorch twin against lightning', 'Restore: 100 M, PyTorch')
        >>> title_of("anything")
        'anything'
    """
    match = _TEST.fullmatch(identifier)
    if match is None:
        return identifier
    function, values, label = match.groups()
    words = " ".join(_PROPER.get(word, word) for word in function.removeprefix("test_").split("_"))
    words = words[:1].upper() + words[1:]
    if values and words.endswith(" against"):
        words, values = f"{words} {values}", ""
    values = re.sub(r"(?:(?<=-)|^)(jax|torch)(?=-|$)", lambda side: _PROPER[side[1]], values or "")
    values = re.sub(r"-(?=JAX|PyTorch)|(?<=JAX)-|(?<=PyTorch)-", ", ", values)
    rest = ", ".join(part for part in (values, label) if part and not (part is label and label in values))
    return f"{words}: {rest}" if rest else words


def bench_name(benchmark: Benchmark) -> str:
    """Return the name of what a benchmark's ratios are about: its test, or the benchmark where it is of no test."""
    found = _test_of(benchmark)
    return title_of(found) if found else benchmark.name


def arm_name(benchmark: Benchmark) -> str:
    """Return the name of one arm among those of its test."""
    found = _test_of(benchmark)
    name = benchmark.name.rpartition("::")[2]
    return name.removeprefix(found).strip() if found and name.strip() != found else title_of(benchmark.name)


def _test_of(benchmark: Benchmark) -> str:
    """Return the identifier of the test whose arm a benchmark is; empty for a benchmark of another kind."""
    _, colons, test = (benchmark.group or "").rpartition("::")
    return test if colons and test and benchmark.name.rpartition("::")[2].startswith(test) else ""
