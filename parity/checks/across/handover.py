"""The handover check: a run that stops on one side and continues on the other, also there and back."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from parity.checks.across.agreement import agree
from parity.checks.across.curves import Curve, run_from
from parity.checks.across.pair import TwinPair
from parity.contract import Difference, TrainingState, compare_states
from parity.errors import StateError
from parity.results import CheckRecord

__all__ = ["check_handover"]


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
        spliced, handovers, lost = _hand_over(pair, path)
    except StateError as error:
        return broken(suspects=(error.leaf,), notes=(str(error),))
    if lost:
        note = f"the state did not survive the round trip: {lost[0].leaf} {lost[0].detail}"
        return broken(suspects=tuple(dict.fromkeys(d.component for d in lost)), notes=(note,))
    before = {step: record for step, record in reference.items() if step <= pair.middle}
    after = {step: record for step, record in reference.items() if step > pair.middle}
    result = agree(after, spliced, spec.precision, floor=lambda: pair.floor, envelope=lambda: pair.envelope)
    result = replace(result, notes=("state survived every handover bit for bit", *result.notes))
    labels = (f"{path[0]}, uninterrupted", f"{' > '.join(path)}")
    curves = (reference, before | spliced)
    return result.record(name, spec, path, began, curves, labels, handovers)


def _hand_over(pair: TwinPair, path: tuple[str, ...]) -> tuple[Curve, tuple[int, ...], list[Difference]]:
    """Return the records after the first handover, the steps of all, and the leaves that did not survive one."""
    state: TrainingState = pair.middle_state(path[0])
    step, steps = pair.middle, pair.spec.steps
    spliced: Curve = {}
    handovers: tuple[int, ...] = ()
    for number, name in enumerate(path[1:], 1):
        trainer = pair.trainers[name]
        until = step + (steps - step) // (len(path) - number)
        trainer.import_state(state)
        handovers += (step,)
        lost = compare_states(state, trainer.export_state())
        if lost:
            return spliced, handovers, lost
        spliced |= run_from(trainer, until)
        state, step = trainer.export_state(), until
    return spliced, handovers, []
