"""Lower bounds on the memory of a run, so that a spec that cannot fit is refused before anything is built.

What fits is never refused, and what is not refused may still not fit. Without this, a framework reports it in a
traceback, perhaps after minutes, or the system ends the process without a message.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parity.errors import SpecError
from parity.spec import RunSpec
from parity.twins.layout import Layout

__all__ = ["Need", "activations", "gigabytes", "host_needs", "physical_memory", "require_memory"]

STEP_BYTES = 100
"""What a chunk holds for each step beside its batch: index, learning rate, record, the 32 digits of its digest."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Something that is in memory as a whole at some time of a run."""

    what: str
    size: int
    """Bytes."""
    factors: Mapping[str, int]
    """Field of the spec to what it contributes; the largest is named."""


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine, or None where the system does not report it."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return size if size > 0 else None


def gigabytes(size: int) -> str:
    """Return bytes as text in GB."""
    return f"{size / 1e9:,.1f} GB"


def require_memory(needs: Sequence[Need]) -> None:
    """Refuse a run that needs more than the memory of this machine, where the system reports how much there is.

    Args:
        needs: What is in memory as a whole at some time of the run.

    Raises:
        SpecError: A need is larger; names the field of the spec that contributes most.
    """
    memory = physical_memory()
    for need in needs:
        if memory is not None and need.size > memory:
            field = max(need.factors, key=lambda name: need.factors[name])
            problem = f"needs at least {gigabytes(need.size)} for {need.what}, this machine has {gigabytes(memory)}"
            raise SpecError(field, problem)


def host_needs(spec: RunSpec) -> list[Need]:
    """Return what a run takes of the host's memory, on any device.

    That is the copy of the state that a save writes, and the longest chunk.
    """
    return [_state(spec), _chunk(spec)]


def activations(spec: RunSpec) -> list[Need]:
    """Return what the widest layer takes of the memory of the device that a run trains on.

    A validation passes all of its samples at once.
    """
    validates = 0 < spec.validate_every <= spec.steps
    samples = max(spec.micro_batch, spec.data.validation if validates else 0)
    field = "batch" if samples == spec.micro_batch else "data.validation"
    wide = {"float64": 8, "float32": 4}.get(spec.precision, 2)
    return [
        Need(
            what=f"{what} of {samples} sample{'s' * (samples > 1)}",
            size=samples * each * wide,
            factors={field: samples, **factors},
        )
        for what, each, factors in spec.model.widest()
    ]


def _state(spec: RunSpec) -> Need:
    layout = Layout.of(spec)
    count = sum(
        math.prod(row.shape) for rows in (layout.params, *(slot.rows for slot in layout.slots)) for row in rows
    )
    size = count * (8 if spec.precision == "float64" else 4)
    what = "parameters and optimizer state" if layout.slots else "parameters"
    return Need(what=what, size=size, factors=spec.model.growth())


def _chunk(spec: RunSpec) -> Need:
    """Return what the longest chunk takes: its batches, read in one go, and their rows in the data (int64)."""
    sample = spec.model.sample_bytes(spec.data.source)
    steps = spec.plan.chunk_length(0, spec.steps, spec.execution.chunk)
    size = steps * (STEP_BYTES + spec.batch * (sample + 8))
    what = f"the batches of a chunk of {steps} steps"
    return Need(what=what, size=size, factors={"execution.chunk": steps, "batch": spec.batch})
