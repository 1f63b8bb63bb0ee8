"""The handover check: a run stopped on one side goes on on the other, and there and back."""

from __future__ import annotations

import time

from parity.checks.across.agree import agree
from parity.checks.across.pair import TwinPair
from parity.checks.across.walk import Curve, walk
from parity.checks.trace import digest_batches, trace
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
    try:
        spliced, handovers, lost = _hand_over(pair, path)
    except StateError as error:
        return _broken(pair, name, path, (error.leaf,), str(error), began)
    if lost:
        note = f"the state did not survive the round trip: {lost[0].leaf} {lost[0].detail}"
        return _broken(pair, name, path, tuple(dict.fromkeys(d.component for d in lost)), note, began)
    after = {step: record for step, record in reference.items() if step > pair.middle}
    result = agree(after, spliced, spec.precision, floor=lambda: pair.floor, envelope=lambda: pair.envelope)
    return CheckRecord(
        name=name,
        spec=spec.name,
        precision=spec.precision,
        sides=path,
        verdict=result.verdict,
        criterion=result.criterion,
        steps_compared=result.gap.steps,
        max_abs_diff=result.gap.max_abs,
        max_rel_diff=result.gap.max_rel,
        envelope_multiple=result.multiple,
        first_divergence=result.first,
        suspects=result.suspects,
        notes=("state survived every handover bit for bit", *result.notes),
        seconds=time.perf_counter() - began,
        curves=trace(
            reference,
            {step: record for step, record in reference.items() if step <= pair.middle} | spliced,
            (f"{path[0]}, uninterrupted", f"{' > '.join(path)}"),
            envelope=result.envelope,
            allowed=result.allowed,
            keep=(result.first.step if result.first else None,),
            handovers=handovers,
        ),
        digests={"batches": digest_batches(reference)},
    )


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
        spliced |= walk(trainer, until)
        state, step = trainer.export_state(), until
    return spliced, handovers, []


def _broken(
    pair: TwinPair, name: str, path: tuple[str, ...], suspects: tuple[str, ...], note: str, began: float
) -> CheckRecord:
    return CheckRecord(
        name=name,
        spec=pair.spec.name,
        precision=pair.spec.precision,
        sides=path,
        verdict="broken",
        criterion="bitwise",
        steps_compared=0,
        suspects=suspects,
        notes=(note,),
        seconds=time.perf_counter() - began,
    )
