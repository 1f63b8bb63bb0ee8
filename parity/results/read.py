"""Results read back from files: the records of a check document, or a file of pytest-benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from parity.errors import ResultError
from parity.results.benchmarks import BenchmarkFile, decode_benchmarks
from parity.results.documents import SCHEMA, read_document
from parity.results.record import CheckRecord, Curves, Verdict, overall
from parity.storage import Decoder, Misfit, shown

__all__ = ["CheckResult", "read_result"]

MOST_CHECKS = 1_000
"""Checks of one document; the standard matrix has 31."""

_DECODER = Decoder(most_items=2_000, most_text=100_000)
"""A curve keeps some 400 steps, and a resolved spec takes 1,500 characters."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What `parity check` found, and where."""

    records: tuple[CheckRecord, ...]
    environment: Mapping[str, Any]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict over all checks."""
        return overall(self.records)


def read_result(path: Path) -> CheckResult | BenchmarkFile:
    """Read a result of `parity check --json` or of `pytest --benchmark-json`.

    The file is trusted in nothing: sizes are bounded, and every field must be of its type.

    Raises:
        ResultError: It cannot be read, or is no result of either kind.
    """
    data = read_document(path)
    if "schema" in data:
        return _checks(path, data)
    if "benchmarks" in data:
        return decode_benchmarks(path, data)
    raise ResultError(
        f"{path} is no result: expected `schema` ({SCHEMA}) as `parity check --json` writes it, or `benchmarks` as "
        f"`pytest --benchmark-json` does, got {shown(sorted(data))}"
    )


def _checks(path: Path, data: Mapping[str, Any]) -> CheckResult:
    if data["schema"] != SCHEMA:
        raise ResultError(f"{path}: unknown schema {shown(data['schema'])}, this version reads {SCHEMA!r}")
    missing = {"verdict", "environment", "checks"} - set(data)
    if missing:
        raise ResultError(f"{path}: no {' and no '.join(sorted(missing))}; the file is not as it was written")
    rows, environment = data["checks"], data["environment"]
    if not isinstance(rows, list) or not isinstance(environment, dict):
        raise ResultError(f"{path}: expected a list of checks and an object `environment`")
    if len(rows) > MOST_CHECKS:
        raise ResultError(f"{path}: {len(rows)} checks, at most {MOST_CHECKS} are read")
    try:
        records = tuple(_record(row, f"checks[{number}]") for number, row in enumerate(rows))
    except Misfit as error:
        raise ResultError(f"{path}: {error}") from error
    result = CheckResult(records=records, environment=environment)
    if data["verdict"] != result.verdict:
        raise ResultError(
            f"{path}: verdict is {shown(data['verdict'])}, the verdict of its checks is {result.verdict!r}; "
            "the file is not as it was written"
        )
    return result


def _record(row: object, where: str) -> CheckRecord:
    record = _DECODER.decode(CheckRecord, row, where)
    if record.curves is not None:
        _check_curves(record.curves, f"{where}.curves")
    return record


def _check_curves(curves: Curves, where: str) -> None:
    """Raise Misfit unless steps rise and every series has one value for each of them."""
    validations = curves.validations
    rows = [(curves.steps, name, getattr(curves, name)) for name in ("difference", "envelope", "allowed")]
    rows += [(curves.steps, q, one) for q in ("loss", "lr", "grad_norm", "loss_scale") for one in getattr(curves, q)]
    if validations is not None:
        rows += [(validations.steps, "validations.value", one) for one in validations.value]
    for steps, name, values in rows:
        if values is not None and len(values) != len(steps):
            raise Misfit(f"{where}.{name}", f"{len(steps)} values, one for each step", len(values))
    for steps in (curves.steps, validations.steps if validations is not None else ()):
        if any(a >= b for a, b in pairwise(steps)):
            raise Misfit(f"{where}.steps", "steps that rise", steps)
