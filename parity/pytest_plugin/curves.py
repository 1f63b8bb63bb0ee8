"""Baseline curves: a curve is compared with the one that the repository keeps, or becomes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from parity.environment import compare_environments, versions
from parity.errors import ResultError, SpecError
from parity.results import encode
from parity.storage import parse_json, read_given, replace_file

__all__ = ["CurveDiffersError", "CurveError", "check_curve"]

CURVE_SCHEMA = "parity.curve/1"
MOST_BYTES = 64 << 20
"""Largest baseline that is read."""


class CurveError(AssertionError):
    """A curve that is not its baseline, or that cannot be compared with one."""


class CurveDiffersError(CurveError):
    """A curve that is not its baseline."""


def check_curve(path: Path, values: object, *, rtol: float, atol: float, update: bool, test: str) -> int:
    """Compare a curve with its baseline, or write it as the new one.

    Args:
        path: File of the baseline.
        values: One number for each step, or step to number.
        rtol: Largest difference that passes, relative to the baseline; with both 0, bits must be equal.
        atol: Largest difference that passes, beside the relative one.
        update: Whether to write the baseline; then nothing is compared.
        test: The test that keeps it.

    Returns:
        Number of steps that were compared, or written.

    Raises:
        CurveDiffersError: It differs.
        CurveError: There is no baseline, or the two cannot be compared.
        SpecError: Arguments that cannot be used.
    """
    for word, allowed in (("rtol", rtol), ("atol", atol)):
        if not 0 <= allowed < math.inf:
            raise SpecError(word, f"must be a finite number of at least 0, got {allowed!r}")
    name, criterion = path.stem, {"rtol": float(rtol), "atol": float(atol)}
    got = _numbers(name, values)
    if update:
        _require_baseline(name, got)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = {
            "schema": CURVE_SCHEMA,
            "test": test,
            "criterion": criterion,
            "steps": list(got),
            "values": list(got.values()),  # JSON writes the shortest text that is read back to the same bits
            "versions": dict(versions()),
        }
        replace_file(path, encode(new) + "\n")
        return len(got)
    kept, expected = _read_baseline(path)
    if kept["criterion"] != criterion:
        raise CurveError(
            f"curve {name!r}: its baseline was kept for {kept['criterion']}, the test asks for {criterion}; "
            f"run with --parity-update to keep the new criterion\n  baseline  {path}"
        )
    _compare(name, expected, got, rtol, atol, _surroundings(path, kept["versions"]))
    return len(got)


def _numbers(name: str, values: object) -> dict[int, float]:
    """Return step to value."""
    if isinstance(values, Mapping):
        rows: Iterable[tuple[Any, Any]] = values.items()
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes):
        rows = enumerate(values)
    else:
        raise SpecError(f"curve {name!r}", f"must be numbers, or step to number, got {type(values).__name__}")
    found: dict[int, float] = {}
    for step, value in rows:
        try:
            found[int(step)] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise SpecError(f"curve {name!r}", f"step {step!r} has no number: {error}") from None
    if not found:
        raise CurveError(f"curve {name!r} has no step: there is nothing to compare")
    return found


def _require_baseline(name: str, values: Mapping[int, float]) -> None:
    """Raise CurveError where no later curve could be judged by this one."""
    bad = next((step for step, value in values.items() if not math.isfinite(value)), None)
    if bad is not None:
        raise CurveError(f"curve {name!r} is {values[bad]} at step {bad}: this is no baseline; nothing was written")
    if not any(values.values()):
        raise CurveError(f"curve {name!r} is 0 at every step: it shows nothing; nothing was written")


def _read_baseline(path: Path) -> tuple[dict[str, Any], dict[int, float]]:
    if not path.exists():
        raise CurveError(
            f"curve {path.stem!r} has no baseline: run with --parity-update, look at what it writes, and commit it\n"
            f"  expected  {path}"
        )
    try:
        kept = parse_json(read_given(path, MOST_BYTES), path, ResultError)
        if kept.get("schema") != CURVE_SCHEMA:
            raise ResultError(f"{path}: schema is {kept.get('schema')!r}, this version reads {CURVE_SCHEMA!r}")
        numbers = {int(step): float(value) for step, value in zip(kept["steps"], kept["values"], strict=True)}
        if not numbers or not {"rtol", "atol"} == set(kept["criterion"]) or not dict(kept["versions"]):
            raise ResultError(f"{path}: steps, criterion or versions are missing")
    except (OSError, ResultError, KeyError, TypeError, ValueError) as error:
        raise CurveError(f"curve {path.stem!r}: its baseline cannot be used: {error}") from None
    return kept, numbers


def _compare(
    name: str, expected: Mapping[int, float], got: Mapping[int, float], rtol: float, atol: float, rest: str
) -> None:
    if len(expected) != len(got):
        raise CurveError(
            f"curve {name!r} has {len(got)} steps, its baseline {len(expected)}: nothing was judged{rest}"
        )
    if list(expected) != list(got):
        step, other = next((a, b) for a, b in zip(expected, got, strict=True) if a != b)
        raise CurveError(
            f"curve {name!r} has step {other} where its baseline has step {step}: nothing was judged{rest}"
        )
    for step in expected:
        if not math.isfinite(expected[step]) and not math.isfinite(got[step]):
            raise CurveError(
                f"curve {name!r} is {got[step]} at step {step}, its baseline {expected[step]}: "
                f"from there on nothing can be judged{rest}"
            )
    differing = [step for step in expected if not _agree(expected[step], got[step], rtol, atol)]
    if differing:
        step = differing[0]
        a, b = expected[step], got[step]
        relative = f", relative {abs(b - a) / abs(a):.3g}" if a else ""
        allowed = f"rtol {rtol:g}, atol {atol:g}" if rtol or atol else "equal bits"
        raise CurveDiffersError(
            f"curve {name!r} differs from its baseline first at step {step}; "
            f"{len(differing)} of {len(got)} steps differ\n"
            f"  expected  {a!r}  ({a.hex()})\n  got       {b!r}  ({b.hex()})\n"
            f"  differs   by {abs(b - a):.3g}{relative}; allowed: {allowed}{rest}\n"
            "if the change is meant, run with --parity-update"
        )


def _agree(expected: float, got: float, rtol: float, atol: float) -> bool:
    if rtol or atol:
        gap = abs(got - expected)  # not finite for NaN and infinity, of which an infinite baseline would allow any
        return math.isfinite(gap) and gap <= atol + rtol * abs(expected)
    return expected.hex() == got.hex()  # 0 and -0 differ


def _surroundings(path: Path, kept: Mapping[str, str]) -> str:
    """Return the lines about the baseline that every message ends with."""
    changed = compare_environments({"versions": kept}, {"versions": dict(versions())}, ("versions",), "installations")
    return f"\n  baseline  {path}" + "".join(f"\n  {line}" for line in changed[:5])
