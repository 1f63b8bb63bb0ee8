"""The loops of a trainer and its port: each resumes exactly, and a run goes over from one to the other."""

from __future__ import annotations

from collections.abc import Sequence

from parity.checks.ports import Convert, hands_over
from parity.checks.proving.sources import PortSource
from parity.checks.proving.verdict import PortStage
from parity.checks.resume import resumes
from parity.errors import ParityError
from parity.results import Suspect

__all__ = ["handover_stage", "resume_stage"]

STEPS = 12
"""Completed steps of the runs that are killed and resumed, and of those that are handed over."""


def resume_stage(first: PortSource, second: PortSource) -> PortStage:
    """Return whether the loops of both resume exactly, each against itself.

    Runs are made within this process, where a kill leaves them suspended: seconds, where new processes take minutes.
    What only a new process loses is for `parity.assert_resumes`.

    Raises:
        SpecError: A loop cannot be called.
    """
    said = []
    for source in (first, second):
        try:
            found = resumes(source.get("train"), steps=STEPS, name=source.name, mode="inline")
        except ParityError as error:
            return PortStage("resume", "inconclusive", f"{source.name}: {error}".splitlines()[0])
        if found.verdict == "broken":
            cause = f"{source.name} does not resume exactly: {_first(found.suspects)}"
            return PortStage("resume", "broken", found.text().splitlines()[0], cause)
        if found.verdict != "holds":
            return PortStage("resume", "inconclusive", f"{source.name}: {'; '.join(found.notes[:2])}")
        said.append(f"{source.name} in {len(found.scenarios)} scenarios")
    return PortStage("resume", "holds", f"{' and '.join(said)}, bit for bit, in this process")


def handover_stage(
    first: PortSource, second: PortSource, convert: Convert | None, back: Convert | None = None
) -> PortStage:
    """Return whether a run of the one continues in the other.

    Args:
        first: The trainer.
        second: Its port.
        convert: Takes the folder of the trainer to that of the port; None where the user gave none.
        back: Takes the folder of the port to that of the trainer. With both, a run goes there and back.
    """
    if convert is None and back is None:
        said = ("no conversion was given: --convert MODULE:NAME, a function of the trainer's folder and the port's; "
                "--back MODULE:NAME for the other direction")  # fmt: skip
        return PortStage("handover", "inconclusive", said)
    one, other, way, again = (first, second, convert, back) if convert is not None else (second, first, back, None)
    assert way is not None
    trains = one.get("train"), other.get("train")
    try:
        found = hands_over(*trains, convert=way, back=again, steps=STEPS, mode="inline")
    except ParityError as error:
        return PortStage("handover", "inconclusive", str(error).splitlines()[0])
    if found.verdict == "broken":
        return PortStage("handover", "broken", found.text().splitlines()[0], _first(found.suspects))
    if found.verdict != "holds":
        return PortStage("handover", "inconclusive", "; ".join(found.notes[:2]))
    at = f"at step{'s' * (len(found.handovers) > 1)} {' and '.join(map(str, found.handovers))} of {STEPS}"
    whose = f"from {one.name} to {other.name}{' and back' if again is not None else ''}"
    return PortStage("handover", "holds", f"{whose}, {at}: {found.pairs} arrays taken over")


def _first(suspects: Sequence[Suspect]) -> str:
    return f"{suspects[0].component}, {suspects[0].path}" if suspects else ""
