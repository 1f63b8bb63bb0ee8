"""The two checks across sides: the twins, which train one spec alike, and the handover of a run between them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial

from parity.checks import FLOAT64_LIMIT, is_near, trace_validations
from parity.errors import StateError
from parity.reference.across.agreement import Agreement, agree
from parity.reference.across.curves import StepCurve, ValidationCurve, run_from
from parity.reference.across.pair import TwinPair
from parity.reference.suspects import SUSPECTS, name_lost
from parity.results import CheckRecord
from parity.state import Difference, TrainingState, compare_states

__all__ = ["check_handover", "check_twins"]


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


def check_handover(pair: TwinPair, path: tuple[str, ...]) -> CheckRecord:
    """Hand a run over along a path of sides and compare the spliced curve with the first side's uninterrupted one.

    Args:
        pair: The two trainers.
        path: Sides in order: `("torch", "jax")`, or there and back, `("torch", "jax", "torch")`.

    Numerics: the state survives each handover bit for bit; the loss differs by rounding only, as for the twins.
    """
    began = time.perf_counter()
    spec, reference = pair.spec, pair.curve(path[0])
    name = f"handover {'-'.join(path)}"
    broken = partial(CheckRecord.of, name, spec.name, spec.precision, path, "broken", began=began)
    try:
        spliced, validations, handovers, lost = _hand_over(pair, path)
    except StateError as error:
        return broken(suspects=(error.leaf,), notes=(str(error),))
    if lost:
        note = f"the state did not survive the round trip: {lost[0].leaf} {lost[0].detail}"
        return broken(notes=(note,), **name_lost(lost, "after the handover"))
    before = {step: record for step, record in reference.items() if step <= pair.middle}
    after = {step: record for step, record in reference.items() if step > pair.middle}
    result = agree(after, spliced, spec.precision, floor=lambda: pair.floor, envelope=lambda: pair.envelope)
    result = replace(result, notes=("state survived every handover bit for bit", *result.notes))
    validated = pair.validations(path[0]), validations
    if result.verdict == "holds" and spec.precision == "float64":
        result = _with_validations(result, *validated)
    labels = (f"{path[0]}, uninterrupted", f"{' > '.join(path)}")
    curves = (reference, before | spliced)
    return result.record(name, spec, path, began, curves, labels, handovers, trace_validations(*validated))


def _with_validations(result: Agreement, reference: ValidationCurve, spliced: ValidationCurve) -> Agreement:
    """Return a result that holds, or what the validation curve after the handover makes of it: float64 only."""
    gap = 0.0
    for step in sorted({*reference, *spliced}):
        x, y = (run[step].loss if step in run else math.nan for run in (reference, spliced))
        if not is_near(x, y, FLOAT64_LIMIT):
            note = f"validation loss of step {step} is {y!r}, was {x!r}, though the training curves agree"
            return replace(result, verdict="broken", suspects=SUSPECTS["validation"], notes=(*result.notes, note))
        gap = max(gap, abs(x - y) / max(abs(x), 1e-300))
    note = f"{len(reference)} validations after the handover, largest relative difference of the loss {gap:.1e}"
    return replace(result, notes=(*result.notes, note)) if reference else result


Spliced = tuple[StepCurve, ValidationCurve, tuple[int, ...], list[Difference]]


def _hand_over(pair: TwinPair, path: tuple[str, ...]) -> Spliced:
    """Return records and validations after the first handover, the steps of all, and the leaves that one lost."""
    state: TrainingState = pair.middle_state(path[0])
    step, steps = pair.middle, pair.spec.steps
    spliced: StepCurve = {}
    validations: ValidationCurve = {}
    handovers: tuple[int, ...] = ()
    for number, name in enumerate(path[1:], 1):
        trainer = pair.trainers[name]
        until = step + (steps - step) // (len(path) - number)
        trainer.import_state(state)
        handovers += (step,)
        lost = compare_states(state, trainer.export_state())
        if lost:
            return spliced, validations, handovers, lost
        spliced |= run_from(trainer, until, on_step=pair.on_step, validations=validations)
        state, step = trainer.export_state(), until
    return spliced, validations, handovers, []
