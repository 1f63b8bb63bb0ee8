"""The twins check: one spec, one start and the same batches, trained on both sides."""

from __future__ import annotations

import time
from dataclasses import replace

from parity.checks import FLOAT64_LIMIT, is_near
from parity.reference.across.agreement import agree
from parity.reference.across.pair import TwinPair
from parity.reference.suspects import SUSPECTS
from parity.results import CheckRecord

__all__ = ["check_twins"]


def check_twins(pair: TwinPair) -> CheckRecord:
    """Compare the curves of both sides by the criterion of the precision, and in float64 the final validation too.

    Numerics: batches, learning rates, loss scales and skipped steps must be equal bit for bit; the loss may differ by
    rounding only: 1e-12 relative in float64, inside the measured envelope below.
    """
    began = time.perf_counter()
    spec, (first, second) = pair.spec, pair.names
    a, b = pair.curve(first), pair.curve(second)
    result = agree(a, b, spec.precision, floor=lambda: pair.floor, envelope=lambda: pair.envelope)
    x, y = pair.validation(first).loss, pair.validation(second).loss
    if result.verdict == "holds" and spec.precision == "float64" and not is_near(x, y, FLOAT64_LIMIT):
        note = f"validation loss is {y!r}, was {x!r}, though the training curves agree"
        result = replace(result, verdict="broken", suspects=SUSPECTS["validation"], notes=(*result.notes, note))
    return result.record("twins", spec, pair.names, began, (a, b), (first, second))
