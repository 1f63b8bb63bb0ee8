"""Every number of a spec, in tuples too, is one that a device can hold: the table is made from the dataclasses."""

import types
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from parity.errors import SpecError
from parity.spec import (
    OPTIMIZER_SPECS,
    PRECISIONS,
    AdamSpec,
    CnnSpec,
    DataSpec,
    ExecutionSpec,
    GptSpec,
    LinearSpec,
    MlpSpec,
    Precision,
    RunSpec,
    SaveSpec,
    ScalerSpec,
    SgdSpec,
    from_dict,
    load,
    override,
    preset,
    to_toml,
)

BASES: dict[Any, str] = {
    CnnSpec: "cnn-digits",
    SgdSpec: "cnn-digits",
    GptSpec: "gpt-text",
    LinearSpec: "linear-regression",
}
"""Preset in which a dataclass occurs, where that is not the first."""


def numeric_fields(cls: Any = RunSpec, table: str = "") -> Iterator[tuple[Any, str, Any]]:
    """Yield the dataclass, the dotted name and the type of every numeric field of a run, and of all it may hold."""
    for name, hint in get_type_hints(cls).items():
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        for option in options:
            if is_dataclass(option):
                yield from numeric_fields(option, f"{name}.")
            elif option in (int, float, tuple[int, ...], tuple[float, ...]):
                yield cls, f"{table}{name}", option


FIELDS = list(numeric_fields())
WRONG: dict[str, float] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "-1": -1,
    "10**20": 10**20,
    "-10**20": -(10**20),
    "1e308": 1e308,
    "20,000 bits": 16**5000,
}

FRACTIONS = (
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.momentum",
    "schedule.final",
    "scaler.growth_factor",
    "scaler.backoff_factor",
    "dropout.rate",
)
"""Floats of which 10**20 is none: below 1, or a power of two."""


def with_value(cls: Any, name: str, hint: Any, value: Any) -> RunSpec:
    """Return a run of float16, so that its scaler counts, with one field set."""
    data = asdict(preset(BASES.get(cls, "mlp-digits"), "float16"))
    if cls in OPTIMIZER_SPECS.values():
        data["optimizer"] = asdict(cls())
    *tables, leaf = name.split(".")
    table = data[tables[0]] if tables else data
    table[leaf] = (*table[leaf], value) if get_origin(hint) is tuple else value
    return from_dict(data)


def test_the_table_holds_every_numeric_field() -> None:
    names = {name for _, name, _ in FIELDS}
    assert {"seed", "steps", "model.hidden", "model.layers", "optimizer.momentum", "scaler.overflow_steps"} <= names
    assert {cls for cls, _, _ in FIELDS} >= {RunSpec, MlpSpec, CnnSpec, GptSpec, AdamSpec, SgdSpec, SaveSpec}


def wrongly_judged(cls: Any, name: str, hint: Any, value: float) -> str:
    """Return what is wrong; empty if a number without sense is refused in a short line that begins with its field."""
    try:
        with_value(cls, name, hint, value)
    except SpecError as error:
        text = str(error)
        return "" if text.startswith(f"{name}: ") and len(text) < 200 and "\n" not in text else f"{name}: {text}"
    fraction = name in FRACTIONS and (name != "optimizer.momentum" or cls is SgdSpec)
    one_of_many = hint is float and value == 10**20 and not fraction
    one_of_many |= (name, value < 0) in (("optimizer.beta2_decay", True), ("optimizer.eps", False))
    return "" if one_of_many else f"{name}: {value} is taken"


@pytest.mark.takes_seconds
def test_a_number_without_sense_names_its_field_in_one_line() -> None:
    every = (wrongly_judged(*field, value) for field in FIELDS for value in WRONG.values())
    assert list(filter(None, every)) == []


def test_a_number_that_is_taken_is_found() -> None:
    assert wrongly_judged(RunSpec, "steps", int, 5) == "steps: 5 is taken"
    assert wrongly_judged(RunSpec, "steps", int, -1) == ""


LARGEST: list[tuple[Any, dict[str, Any]]] = [
    (RunSpec, {"name": "x" * 200, "model": MlpSpec(), "steps": 2**31 - 1, "seed": 2**32 - 1, "clip_norm": 3.4e38}),
    (SaveSpec, {"every": 2**31 - 1, "keep_every": 2**31 - 1, "keep_seconds": 3.4e38}),
    (ScalerSpec, {"overflow_steps": (1, 2**31 - 1), "init_scale": 2.0**127}),
    (ExecutionSpec, {"threads": 1024, "chunk": 2**31 - 1}),
    (MlpSpec, {"hidden": (8,) * 10_000}),
    (GptSpec, {"layers": 10_000}),
]


@pytest.mark.parametrize(("cls", "values"), LARGEST)
def test_the_largest_numbers_are_taken(cls: Any, values: dict[str, Any]) -> None:
    assert cls(**values) == cls(**values)


TOO_LARGE: list[tuple[Any, dict[str, Any], str]] = [
    (RunSpec, {"name": "x" * 201, "model": MlpSpec()}, "name: must be at most 200 characters, got 201"),
    (SaveSpec, {"every": 2**31}, "save.every: must be at most 2147483647, got 2147483648"),
    (AdamSpec, {"lr": 1e39}, r"optimizer.lr: must be at most 3.4028235e\+38, got 1e\+39"),
    (ScalerSpec, {"overflow_steps": (3, 0)}, "scaler.overflow_steps: steps count from 1, got 0"),
    (ExecutionSpec, {"threads": 1025}, "execution.threads: must be at most 1024, got 1025"),
    (MlpSpec, {"hidden": (8,) * 10_001}, "model.hidden: must be at most 10000 layers, got 10001"),
    (CnnSpec, {"channels": (8,) * 10_001}, "model.channels: must be at most 10000 layers, got 10001"),
    (GptSpec, {"layers": 2**31 - 1}, "model.layers: must be at most 10000 layers, got 2147483647"),
]


@pytest.mark.parametrize(("cls", "values", "message"), TOO_LARGE)
def test_one_more_is_refused(cls: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}$"):
        cls(**values)


def test_a_path_that_nothing_reads_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^data\.path: is read only with source 'text', not 'digits'; remove it"):
        DataSpec(path="corpus.txt")
    assert DataSpec(source="text", path="corpus.txt").path == "corpus.txt"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_overflow_steps_are_refused_where_nothing_is_scaled(precision: Precision) -> None:
    texts = ["scaler.overflow_steps=[3]"]
    if precision == "float16":
        assert load("mlp-digits", precision, texts).scaler.overflow_steps == (3,)
        return
    message = (
        rf"^scaler\.overflow_steps: have an effect only with precision 'float16', not '{precision}'; remove them"
    )
    with pytest.raises(SpecError, match=message):
        load("mlp-digits", precision, texts)


def test_a_file_with_overflow_steps_changes_its_precision_once_they_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(to_toml(override(preset("mlp-digits", "float16"), ["scaler.overflow_steps=[3]"])))
    with pytest.raises(SpecError, match=r"^scaler\.overflow_steps: have an effect only with precision 'float16'"):
        load(str(file), "float32")
    spec = load(str(file), "float32", ["scaler.overflow_steps=[]"])
    assert (spec.precision, spec.scaler.overflow_steps) == ("float32", ())
    assert replace(spec, precision="float16").scaler.growth_interval == 40
