"""Presets: complete specs by name, on data that needs no download: real, and for regression synthetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from parity.errors import UnknownNameError
from parity.spec.models import CnnSpec, GptSpec, LinearSpec, MlpSpec
from parity.spec.optimizer import AdamSpec, SgdSpec
from parity.spec.run import DataSpec, DropoutSpec, ExecutionSpec, Precision, RunSpec
from parity.spec.scaler import ScalerSpec
from parity.spec.schedule import ScheduleSpec

__all__ = ["PRESETS", "preset"]

QUICK_STEPS = ExecutionSpec(chunk=100)
"""For presets whose steps take about a millisecond. A chunk costs about a millisecond beyond its steps, with cold
caches; 100 steps keep that at one percent or less."""


PRESETS: Mapping[str, RunSpec] = {
    spec.name: spec
    for spec in (
        RunSpec(name="mlp-digits", model=MlpSpec(), schedule=ScheduleSpec(warmup=20), execution=QUICK_STEPS),
        RunSpec(
            name="cnn-digits",
            model=CnnSpec(),
            optimizer=SgdSpec(lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4, decay="matrices"),
            schedule=ScheduleSpec(kind="linear", warmup=20, final=0.1),
            execution=QUICK_STEPS,
        ),
        RunSpec(
            name="gpt-text",
            model=GptSpec(),
            data=DataSpec(source="text", validation=128),
            optimizer=AdamSpec(lr=1e-3, beta2=0.95, weight_decay=0.1, decay="matrices"),
            schedule=ScheduleSpec(warmup=20, final=0.1),
            batch=16,
            accumulation=2,
            metric="loss",
        ),
        RunSpec(
            name="linear-regression",
            model=LinearSpec(),
            data=DataSpec(source="regression", validation=256),
            optimizer=SgdSpec(lr=0.1, momentum=0.0),
            schedule=ScheduleSpec(kind="constant"),
            clip_norm=0.0,
            dropout=DropoutSpec(rate=0.0),
            metric="loss",
            execution=QUICK_STEPS,
        ),
    )
}
"""Name to the spec, in float32."""


def preset(name: str, precision: Precision = "float32") -> RunSpec:
    """Return the spec of a preset.

    A float16 preset starts at a loss scale of 2**10 that grows every 40 steps, so that the scale grows several times
    within the 200 steps of a run on a CPU.

    Args:
        name: A name in `PRESETS`.
        precision: Precision of the run.

    Raises:
        UnknownNameError: No preset has this name; the message lists those that exist.
        SpecError: There is no such precision.

    Example:
        >>> preset("mlp-digits").model.hidden
        (128, 128)
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    spec = replace(PRESETS[name], precision=precision)
    if precision == "float16":
        spec = replace(spec, scaler=ScalerSpec(init_scale=1024.0, growth_interval=40))
    return spec
