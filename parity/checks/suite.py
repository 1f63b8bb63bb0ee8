"""Which checks run on which specs: the standard matrix, or what was asked for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from parity.checks.handover import check_handover
from parity.checks.pair import TwinPair
from parity.checks.policy import PURE, check_policy, check_policy_of
from parity.checks.record import CheckRecord, ResolvedSpec
from parity.checks.resume import check_resume, drill_spec
from parity.checks.twins import check_twins
from parity.criteria import Criterion
from parity.datasets import describe_data
from parity.errors import ParityError, UnknownNameError
from parity.sides import Side
from parity.spec import RunSpec, preset
from parity.specfile import meaning_hash, to_toml

__all__ = ["CHECKS", "SPEC_CHECKS", "Request", "run_checks", "standard_matrix"]

SPEC_CHECKS = ("resume", "twins", "handover")
"""Checks of a spec; they run once for each."""
CHECKS = (*SPEC_CHECKS, "policy")
DEFAULT_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to check."""

    checks: Sequence[str] = CHECKS
    specs: Sequence[RunSpec]
    sides: Mapping[str, Side]
    """By name; resume and policy are checked on each, twins and handover between the first two."""
    steps: int = DEFAULT_STEPS
    kills: Sequence[int] = ()
    workdir: Path
    """Run directories go to `<workdir>/<spec>-<precision>/<side>/`; those of an earlier check are replaced."""

    def __post_init__(self) -> None:
        for name in self.checks:
            if name not in CHECKS:
                raise UnknownNameError("check", name, CHECKS)


def standard_matrix() -> list[RunSpec]:
    """Return the specs of a bare `parity check`: every preset in float64, and one of them in float16."""
    return [preset(name, "float64") for name in ("mlp-digits", "cnn-digits", "gpt-text")] + [
        preset("mlp-digits", "float16")
    ]


def run_checks(request: Request, say: Callable[[str], None]) -> list[CheckRecord]:
    """Run what was asked for, one check after the other, and return a record for each.

    Args:
        request: What to check.
        say: Takes a line for people when a check has its verdict.
    """
    records = []
    for record in _records(request):
        say(f"{record.name} {record.spec} {record.precision} ({', '.join(record.sides)}): {record.verdict}")
        records.append(record)
    return records


def _records(request: Request) -> Iterator[CheckRecord]:
    if "policy" in request.checks:
        spec = preset("mlp-digits")
        yield _guarded(check_policy, spec, "policy", (PURE,))
        for name, side in request.sides.items():
            yield _guarded(partial(check_policy_of, name, side), spec, "policy", (name,))
    if not set(SPEC_CHECKS) & set(request.checks):
        return
    for asked in request.specs:
        spec = with_overflows(drill_spec(asked, request.steps))
        digest = describe_data(spec)["digest"]
        resolved = ResolvedSpec(toml=to_toml(spec), hash=meaning_hash(spec, digest))
        for record in _checks_of(spec, request):
            yield replace(record, resolved=resolved, digests={"data": digest, **record.digests})


def with_overflows(spec: RunSpec) -> RunSpec:
    """Return a float16 spec with overflows forced at named steps, unless it names its own.

    One falls on a save, so that a checkpoint is taken right after a skipped step.
    """
    if not spec.scaled or spec.scaler.overflow_steps:
        return spec
    every = spec.save.every
    steps = tuple(sorted({max(1, every // 3), 2 * every - 1, 2 * every}))
    return replace(spec, scaler=replace(spec.scaler, overflow_steps=steps))


def _checks_of(spec: RunSpec, request: Request) -> Iterator[CheckRecord]:
    home = request.workdir / f"{spec.name}-{spec.precision}"
    home.mkdir(parents=True, exist_ok=True)
    (home / "spec.toml").write_text(to_toml(spec), encoding="utf-8")
    if "resume" in request.checks:
        for name, side in request.sides.items():
            shutil.rmtree(home / name, ignore_errors=True)
            check = partial(check_resume, spec, name, side, home / name, request.kills)
            yield _guarded(check, spec, "resume", (name,))
    across = [name for name in ("twins", "handover") if name in request.checks]
    if not across:
        return
    began = time.perf_counter()
    names = tuple(request.sides)[:2]
    if len(names) < 2:
        for name in across:
            yield _without(spec, name, names, "inconclusive", "needs two sides, one was given", began)
        return
    try:
        pair = TwinPair(spec, {name: request.sides[name] for name in names})
    except Exception as error:  # one spec that fails must not cost the records of the others
        for name in across:
            yield _without(spec, name, names, "crashed", _describe(error), began)
        return
    a, b = names
    if "twins" in across:
        yield _guarded(lambda: check_twins(pair), spec, "twins", names)
    for path in ((a, b), (b, a), (a, b, a), (b, a, b)) if "handover" in across else ():
        yield _guarded(partial(check_handover, pair, path), spec, f"handover {'-'.join(path)}", path)


def _guarded(check: Callable[[], CheckRecord], spec: RunSpec, name: str, names: tuple[str, ...]) -> CheckRecord:
    """Run a check; an error of ours or of a framework becomes a crashed record, never a lost one."""
    began = time.perf_counter()
    try:
        return check()
    except Exception as error:
        return _without(spec, name, names, "crashed", _describe(error), began)


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ParityError) else f"{type(error).__name__}: {error}"


def _without(spec: RunSpec, name: str, names: tuple[str, ...], verdict: str, note: str, began: float) -> CheckRecord:
    across: Criterion = "float64" if spec.precision == "float64" else "envelope"
    return CheckRecord(
        name=name,
        spec=spec.name,
        precision=spec.precision,
        sides=names,
        verdict=verdict,  # type: ignore[arg-type]
        criterion="bitwise" if name in ("resume", "policy") else across,
        steps_compared=0,
        notes=(note,),
        seconds=time.perf_counter() - began,
    )
