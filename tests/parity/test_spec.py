"""A spec that cannot be run is refused when it is made, with the field and the arithmetic in the message."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from parity.errors import ParityError, SpecError, UnknownNameError
from parity.spec import (
    PRECISIONS,
    PRESETS,
    AdamSpec,
    CnnSpec,
    DataSpec,
    DropoutSpec,
    ExecutionSpec,
    GptSpec,
    MeshSpec,
    MlpSpec,
    RunSpec,
    SaveSpec,
    ScalerSpec,
    ScheduleSpec,
    SgdSpec,
    preset,
)

GPT = {"model": GptSpec(), "data": DataSpec(source="text"), "metric": "loss"}

REFUSED: list[tuple[Any, dict[str, Any], str, str]] = [
    (MlpSpec, {"hidden": ()}, "model.hidden", "needs at least one layer"),
    (MlpSpec, {"hidden": (16, 0)}, "model.hidden", "must be above 0, got 0"),
    (MlpSpec, {"inputs": 0}, "model.inputs", "must be above 0, got 0"),
    (MlpSpec, {"classes": -1}, "model.classes", "must be above 0, got -1"),
    (CnnSpec, {"channels": ()}, "model.channels", "needs at least one layer"),
    (CnnSpec, {"channels": (0,)}, "model.channels", "must be above 0, got 0"),
    (CnnSpec, {"size": 0}, "model.size", "must be above 0, got 0"),
    (CnnSpec, {"size": 6}, "model.channels", "2 poolings by 2 do not divide an image of 6 pixels"),
    (GptSpec, {"layers": 0}, "model.layers", "must be above 0, got 0"),
    (GptSpec, {"heads": 3}, "model.heads", "3 heads do not divide a width of 64"),
    (GptSpec, {"embedding_std": 0.0}, "model.embedding_std", "must be above 0"),
    (DataSpec, {"validation": 0}, "data.validation", "must be above 0, got 0"),
    (AdamSpec, {"lr": 0.0}, "optimizer.lr", "must be above 0"),
    (AdamSpec, {"lr": float("nan")}, "optimizer.lr", "must be finite, got nan"),
    (AdamSpec, {"eps": 0.0}, "optimizer.eps", "must be above 0"),
    (AdamSpec, {"beta1": 1.0}, "optimizer.beta1", r"must be in [0, 1)"),
    (AdamSpec, {"beta2": -0.1}, "optimizer.beta2", r"must be in [0, 1)"),
    (AdamSpec, {"weight_decay": -1.0}, "optimizer.weight_decay", "must be at least 0, got -1"),
    (SgdSpec, {"lr": -1.0}, "optimizer.lr", "must be above 0"),
    (SgdSpec, {"momentum": 1.0}, "optimizer.momentum", "must be in [0, 1)"),
    (SgdSpec, {"weight_decay": -1.0}, "optimizer.weight_decay", "must be at least 0, got -1"),
    (SgdSpec, {"nesterov": True, "momentum": 0.0}, "optimizer.nesterov", "needs a momentum above 0"),
    (ScheduleSpec, {"warmup": -1}, "schedule.warmup", "must be at least 0, got -1"),
    (ScheduleSpec, {"final": 1.5}, "schedule.final", "must be in [0, 1]"),
    (ScheduleSpec, {"warmup": 9, "horizon": 9}, "schedule.horizon", "after the warm-up of 9 steps, got 9"),
    (ScalerSpec, {"init_scale": 0.5}, "scaler.init_scale", "must be at least 1, got 0.5"),
    (ScalerSpec, {"growth_factor": 1.0}, "scaler.growth_factor", "must be above 1"),
    (ScalerSpec, {"backoff_factor": 1.0}, "scaler.backoff_factor", "must be in (0, 1)"),
    (ScalerSpec, {"growth_factor": 1.1}, "scaler.growth_factor", "must be a power of two"),
    (ScalerSpec, {"backoff_factor": 0.7}, "scaler.backoff_factor", "must be a power of two"),
    (ScalerSpec, {"growth_interval": 0}, "scaler.growth_interval", "must be above 0"),
    (ScalerSpec, {"max_skips": 0}, "scaler.max_skips", "must be above 0"),
    (DropoutSpec, {"rate": 1.0}, "dropout.rate", "must be in [0, 1), got 1.0"),
    (SaveSpec, {"every": 0}, "save.every", "must be above 0"),
    (SaveSpec, {"keep_latest": 0}, "save.keep_latest", "must be above 0"),
    (SaveSpec, {"keep_best": -1}, "save.keep_best", "must be at least 0, got -1"),
    (ExecutionSpec, {"chunk": 0}, "execution.chunk", "must be above 0"),
    (ExecutionSpec, {"chunk_seconds": 0.0}, "execution.chunk_seconds", "must be above 0"),
    (ExecutionSpec, {"threads": -1}, "execution.threads", "must be at least 0, got -1"),
    (MeshSpec, {"data": 0}, "mesh.data", "must be above 0"),
]

RUNS_REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"batch": 0}, "batch", "must be above 0, got 0"),
    ({"steps": 0}, "steps", "must be above 0, got 0"),
    ({"accumulation": 0}, "accumulation", "must be above 0, got 0"),
    ({"precision": "float8"}, "precision", "must be one of float64, float32, bfloat16, float16"),
    ({"seed": -1}, "seed", "must be in [0, 2**32), got -1"),
    ({"seed": 2**32}, "seed", "must be in [0, 2**32), got 4294967296"),
    ({"clip_norm": -1.0}, "clip_norm", "must be at least 0, got -1"),
    ({"validate_every": -1}, "validate_every", "must be at least 0, got -1"),
    ({"batch": 64, "accumulation": 3}, "accumulation", "64 samples / 3 micro-batches leaves 1"),
    (
        {"batch": 60, "accumulation": 2, "mesh": MeshSpec(data=4)},
        "mesh.data",
        "micro-batch of 60 / 2 = 30 samples over 4 devices leaves 2",
    ),
    ({"data": DataSpec(source="text")}, "data.source", "'text' does not fit a model of kind 'mlp'"),
    ({"model": GptSpec()}, "data.source", "'digits' does not fit a model of kind 'gpt'"),
    ({**GPT, "metric": "accuracy"}, "metric", "a text run is judged by 'loss'"),
]


@pytest.mark.parametrize(("cls", "values", "field", "message"), REFUSED)
def test_a_part_that_cannot_be_run_names_its_field(
    cls: Any, values: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(SpecError, match=field.replace(".", r"\.") + ": ") as caught:
        cls(**values)
    assert caught.value.field == field
    assert message in str(caught.value)


@pytest.mark.parametrize(("values", "field", "message"), RUNS_REFUSED)
def test_a_run_that_cannot_be_run_shows_the_arithmetic(values: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(SpecError, match="^" + field.replace(".", r"\.") + ": ") as caught:
        RunSpec(**{"name": "run", "model": MlpSpec(), **values})
    assert message in str(caught.value)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownNameError, match="unknown preset 'mlp'; known: cnn-digits, gpt-text, linear-regression, mlp-digits"
    ):
        preset("mlp")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_preset_is_a_run_in_every_precision(name: str, precision: Any) -> None:
    spec = preset(name, precision)
    assert (spec.name, spec.precision) == (name, precision)
    assert spec.scaled == (precision == "float16")
    assert spec.micro_batch * spec.accumulation == spec.batch


def test_a_spec_is_a_value() -> None:
    spec = preset("mlp-digits")
    assert spec == preset("mlp-digits")
    assert hash(spec) == hash(preset("mlp-digits"))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'batch'"):
        spec.batch = 1  # type: ignore[misc]
    with pytest.raises(SpecError, match="batch: must be above 0"):
        replace(spec, batch=0)


def test_every_error_on_purpose_is_a_parity_error() -> None:
    with pytest.raises(ParityError, match=r"optimizer\.lr: must be above 0"):
        AdamSpec(lr=0.0)
