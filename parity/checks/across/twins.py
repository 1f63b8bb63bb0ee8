"""The twins check: same spec, same start, same batches, walked on both sides."""

from __future__ import annotations

import time

from parity.checks.across.agree import agree
from parity.checks.across.criteria import FLOAT64_LIMIT
from parity.checks.across.pair import TwinPair
from parity.checks.trace import digest_batches, trace
from parity.results import CheckRecord, Verdict

__all__ = ["check_twins"]


def check_twins(pair: TwinPair) -> CheckRecord:
    """Compare the curves of both sides by the criterion of the precision, and in float64 the final validation too.

    Numerics: batches, learning rates, loss scales and skipped steps must be equal bit for bit; the loss may differ by
    rounding only: 1e-12 relative in float64, inside the measured envelope below.
    """
    began = time.perf_counter()
    spec, (first, second) = pair.spec, pair.names
    a, b = pair.curve(first), pair.curve(second)
    result = agree(
        a,
        b,
        spec.precision,
        floor=lambda: pair.floor,
        envelope=lambda: pair.envelope,
    )
    verdict: Verdict = result.verdict
    suspects, notes = result.suspects, result.notes
    x, y = pair.validation(first).loss, pair.validation(second).loss
    if verdict == "holds" and spec.precision == "float64" and not abs(x - y) <= FLOAT64_LIMIT * abs(x):
        verdict, suspects = "broken", ("model.buffers",)
        notes = (*notes, f"validation loss is {y!r}, was {x!r}, though the training curves agree")
    return CheckRecord(
        name="twins",
        spec=spec.name,
        precision=spec.precision,
        sides=pair.names,
        verdict=verdict,
        criterion=result.criterion,
        steps_compared=result.gap.steps,
        max_abs_diff=result.gap.max_abs,
        max_rel_diff=result.gap.max_rel,
        envelope_multiple=result.multiple,
        first_divergence=result.first,
        suspects=suspects,
        notes=notes,
        seconds=time.perf_counter() - began,
        curves=trace(
            a,
            b,
            (first, second),
            envelope=result.envelope,
            allowed=result.allowed,
            keep=(result.first.step if result.first else None,),
        ),
        digests={"batches": digest_batches(a)},
    )
