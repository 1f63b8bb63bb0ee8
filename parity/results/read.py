"""Results back from files: the records of a check document, or a file of pytest-benchmark."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from parity.errors import CheckpointError, ResultError
from parity.results.benchmark_compare import BenchmarkFile, read_benchmarks
from parity.results.document import SCHEMA
from parity.results.record import CheckRecord, Curves, Verdict, overall
from parity.storage import read_json

__all__ = ["CheckResult", "read_result"]

MOST_CHECKS = 1_000
"""Checks of one document; the standard matrix has 31."""

MOST_ITEMS = 2_000
"""Items of one list of a check; a curve keeps some 400 steps."""

MOST_TEXT = 100_000
"""Characters of one text; a resolved spec takes 1,500."""


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
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise ResultError(f"{path} is empty: the run that was to write it did not finish; run it again")
        data = read_json(path)
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror or error}") from error
    except CheckpointError as error:
        hint = "a truncated file comes from a run that broke off: run it again"
        raise ResultError(f"{error}; expected the JSON of a result ({hint})") from error
    if "schema" in data:
        return _checks(path, data)
    if "benchmarks" in data:
        return read_benchmarks(path)
    raise ResultError(
        f"{path} is no result: expected `schema` ({SCHEMA}) as `parity check --json` writes it, or `benchmarks` as "
        f"`pytest --benchmark-json` does, got {_shown(sorted(data))}"
    )


def _checks(path: Path, data: Mapping[str, Any]) -> CheckResult:
    if data["schema"] != SCHEMA:
        raise ResultError(f"{path}: unknown schema {_shown(data['schema'])}, this version reads {SCHEMA!r}")
    missing = {"verdict", "environment", "checks"} - set(data)
    if missing:
        raise ResultError(f"{path}: no {' and no '.join(sorted(missing))}; the file is not as it was written")
    rows, environment = data["checks"], data["environment"]
    if not isinstance(rows, list) or not isinstance(environment, dict):
        raise ResultError(f"{path}: expected a list of checks and an object `environment`")
    if len(rows) > MOST_CHECKS:
        raise ResultError(f"{path}: {len(rows)} checks, at most {MOST_CHECKS} are read")
    try:
        records = tuple(_convert(CheckRecord, row, f"checks[{number}]") for number, row in enumerate(rows))
    except _Misfit as error:
        raise ResultError(f"{path}: {error}") from error
    result = CheckResult(records=records, environment=environment)
    if data["verdict"] != result.verdict:
        raise ResultError(
            f"{path}: verdict is {_shown(data['verdict'])}, its checks come to {result.verdict!r}; "
            "the file is not as it was written"
        )
    return result


class _Misfit(ValueError):
    """A value that is not of its field's type."""

    def __init__(self, where: str, expected: str, got: object) -> None:
        super().__init__(f"{where}: expected {expected}, got {_shown(got)}")


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Return a JSON value as the type of a field wants it."""
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _scalar(value, where)
    if is_dataclass(hint):
        return _build(hint, value, where)
    if origin is typing.Literal:
        if value not in of if isinstance(value, str) else True:
            raise _Misfit(where, f"one of {', '.join(of)}", value)
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _convert(next(h for h in of if h is not types.NoneType), value, where)
    if origin is tuple:
        return _tuple(of, value, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict) or len(value) > MOST_ITEMS:
            raise _Misfit(where, f"an object of at most {MOST_ITEMS} names", value)
        return {_convert(of[0], k, where): _convert(of[1], v, f"{where}.{_shown(k)}") for k, v in value.items()}
    return _plain(hint, value, where)


def _build(cls: Any, value: Any, where: str) -> Any:
    """Build a dataclass: every field of its type, none unknown, none missing that has no default."""
    if not isinstance(value, dict):
        raise _Misfit(where, "an object", value)
    hints, known = typing.get_type_hints(cls), {f.name: f for f in fields(cls)}
    for name in value:
        if name not in known:
            raise _Misfit(where, f"the fields {', '.join(known)}", name)
    for name, one in known.items():
        if name not in value and one.default is MISSING and one.default_factory is MISSING:
            raise _Misfit(where, f"a field {name}", sorted(value))
    built = cls(**{name: _convert(hints[name], item, f"{where}.{name}") for name, item in value.items()})
    return _check_curves(built, where) if cls is Curves else built


def _check_curves(curves: Curves, where: str) -> Curves:
    """Return curves whose series have a value for each of their steps."""
    validations = curves.validations
    rows = [(curves.steps, name, getattr(curves, name)) for name in ("difference", "envelope", "allowed")]
    rows += [(curves.steps, q, one) for q in ("loss", "lr", "grad_norm", "loss_scale") for one in getattr(curves, q)]
    if validations is not None:
        rows += [(validations.steps, "validations.value", one) for one in validations.value]
    for steps, name, values in rows:
        if values is not None and len(values) != len(steps):
            raise _Misfit(f"{where}.{name}", f"{len(steps)} values, one for each step", len(values))
    for steps in (curves.steps, validations.steps if validations is not None else ()):
        if any(a >= b for a, b in pairwise(steps)):
            raise _Misfit(f"{where}.steps", "steps that rise", steps)
    return curves


def _tuple(of: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        raise _Misfit(where, f"a list of at most {MOST_ITEMS} items", value)
    hints = of[:1] * len(value) if of[1:] == (...,) else of
    if len(hints) != len(value):
        raise _Misfit(where, f"{len(hints)} items", value)
    return tuple(
        _convert(hint, item, f"{where}[{n}]") for n, (hint, item) in enumerate(zip(hints, value, strict=True))
    )


def _plain(hint: Any, value: Any, where: str) -> Any:
    if hint is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number and value not in ("inf", "-inf", "nan"):
            raise _Misfit(where, "a number, or one of inf, -inf, nan", value)
        try:
            return float(value)
        except OverflowError:
            raise _Misfit(where, "a number that fits 64 bits", value) from None
    if type(value) is not hint or (hint is int and not -(2**63) <= value < 2**63):
        raise _Misfit(
            where, {"str": "a text", "int": "an integer of 64 bits"}.get(hint.__name__, hint.__name__), value
        )
    if hint is str and len(value) > MOST_TEXT:
        raise _Misfit(where, f"a text of at most {MOST_TEXT} characters", value)
    return value


def _scalar(value: Any, where: str) -> Any:
    """Return what a divergence expected or got: a plain value."""
    if isinstance(value, dict | list):
        raise _Misfit(where, "a plain value", value)
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
