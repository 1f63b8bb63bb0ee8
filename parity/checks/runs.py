"""Two runs compared as they lie on disk: their specs, their records, and the checkpoints that both have."""

from __future__ import annotations

from parity.checkpoints import compare
from parity.checks.criteria import curve_gap
from parity.checks.traces import losses
from parity.contract import (
    StepRecord,
    Validation,
    first_divergence,
    flatten_tables,
    parse_toml,
    read_records,
    same,
    splice,
)
from parity.errors import RunDirectoryError
from parity.results import RunComparison
from parity.runs import RunDirectory

__all__ = ["compare_runs"]


def compare_runs(a: RunDirectory, b: RunDirectory) -> RunComparison:
    """Compare two runs bit for bit, without loading a framework.

    Args:
        a: The run that counts as the reference.
        b: The other run; it may be of the other side.

    Raises:
        RunDirectoryError: One is no run, or its records or its spec cannot be read.
        CheckpointError: A checkpoint changed while it was read.
    """
    left, right = (splice(read_records(run.steps, StepRecord)) for run in (a, b))
    validated = [splice(read_records(run.validations, Validation)) for run in (a, b)]
    whole = [{saved.step for saved in run.store.scan().whole} for run in (a, b)]
    gap = curve_gap(losses(left), losses(right))
    return RunComparison(
        fields=_fields_that_differ(a, b),
        steps=gap.steps,
        max_rel_diff=gap.max_rel,
        divergence=first_divergence(left, right),
        validations=tuple(
            step
            for step in sorted({*validated[0], *validated[1]})
            if not _same_validation(validated[0].get(step), validated[1].get(step))
        ),
        checkpoints={
            step: tuple(compare(a.checkpoints / str(step), b.checkpoints / str(step)))
            for step in sorted(whole[0] & whole[1])
        },
    )


def _fields_that_differ(a: RunDirectory, b: RunDirectory) -> dict[str, tuple[object, object]]:
    left, right = _fields(a), _fields(b)
    return {
        name: (left.get(name), right.get(name))
        for name in sorted({*left, *right})
        if not same(left.get(name), right.get(name))
    }


def _fields(run: RunDirectory) -> dict[str, object]:
    if not run.exists:
        raise RunDirectoryError(run.no_run())
    try:
        return flatten_tables(parse_toml(run.identity_text()))
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{run.path / 'spec.toml'} cannot be read: {error}") from error


def _same_validation(a: Validation | None, b: Validation | None) -> bool:
    return (
        a is not None and b is not None and a.metric == b.metric and same(a.value, b.value) and same(a.loss, b.loss)
    )
