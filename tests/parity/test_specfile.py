"""Specs survive TOML, overrides say what they changed, and the hash covers exactly what gives a run its meaning."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import SpecError, UnknownNameError
from parity.spec import (
    FREE,
    PRECISIONS,
    PRESETS,
    AdamSpec,
    RunSpec,
    SgdSpec,
    differences,
    flatten,
    from_dict,
    from_toml,
    load,
    override,
    preset,
    spec_hash,
    to_toml,
)
from tests.support.small import quick

counts = st.integers(1, 10_000)
floats = st.floats(1e-300, 3.4e38)
fractions = st.floats(0, 1, exclude_max=True)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,19}", fullmatch=True)


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    """Any valid run, by way of a preset."""
    spec = preset(draw(st.sampled_from(sorted(PRESETS))), draw(st.sampled_from(PRECISIONS)))
    warmup = draw(counts)
    optimizer = draw(
        st.one_of(
            st.builds(AdamSpec, kind=st.sampled_from(["adam", "adamw"]), lr=floats, beta1=fractions, eps=floats),
            st.builds(SgdSpec, lr=floats, momentum=fractions, weight_decay=st.floats(0, 10)),
        )
    )
    accumulation = draw(st.integers(1, 5))
    return replace(
        spec,
        name=draw(names),
        optimizer=optimizer,
        schedule=replace(spec.schedule, warmup=warmup, horizon=warmup + draw(counts), final=draw(st.floats(0, 1))),
        scaler=replace(spec.scaler, overflow_steps=tuple(draw(st.lists(counts, max_size=3 * spec.scaled)))),
        accumulation=accumulation,
        batch=accumulation * draw(st.integers(1, 100)),
        seed=draw(st.integers(0, 2**32 - 1)),
        clip_norm=draw(st.floats(0, 1e9)),
        dropout=replace(spec.dropout, rate=draw(fractions)),
        steps=draw(counts),
    )


@pytest.mark.takes_seconds
@given(spec=specs())
@quick(60)
def test_a_spec_reads_back_from_toml_as_itself(spec: RunSpec) -> None:
    again = from_toml(to_toml(spec))
    assert again == spec
    assert to_toml(again) == to_toml(spec)
    assert differences(again, spec) == {}


@pytest.mark.takes_seconds
@given(spec=specs())
@quick(30)
def test_every_leaf_field_can_be_overridden_by_its_own_name(spec: RunSpec) -> None:
    toml = {name: value for name, value in flatten(spec).items() if isinstance(value, bool | int | float)}
    texts = [f"{name}={str(value).lower()}" for name, value in toml.items()]
    assert override(spec, texts) == spec


@pytest.mark.parametrize("name", PRESETS)
def test_load_gives_a_preset_a_precision_and_overrides(name: str) -> None:
    spec = load(name, "bfloat16", ["seed=7", "dropout.rate=0"])
    assert (spec.precision, spec.seed, spec.dropout.rate) == ("bfloat16", 7, 0.0)
    assert type(spec.dropout.rate) is float


def test_load_reads_a_file_and_replaces_its_precision(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(to_toml(preset("cnn-digits", "float64")))
    assert load(str(file)) == preset("cnn-digits", "float64")
    assert load(str(file), "float32").precision == "float32"


ERRORS: list[tuple[list[str], type[Exception], str]] = [
    (["optimiser.lr=1"], UnknownNameError, r"unknown field 'optimiser\.lr'; did you mean optimizer\.lr"),
    (["optimizer.rate=1"], UnknownNameError, r"unknown field 'optimizer\.rate'; did you mean optimizer\.lr"),
    (["batch.size=1"], UnknownNameError, r"unknown field 'batch\.size'; (did you mean|known: .*batch)"),
    (
        ["optimizer.kind=lbfgs"],
        UnknownNameError,
        "unknown optimizer.kind 'lbfgs'; known: adadelta, adafactor, adagrad, adam, adamax, adamw",
    ),
    (["model.kind=rnn"], UnknownNameError, "unknown model.kind 'rnn'; known: cnn, gpt, linear, mlp"),
    (["schedule.kind=step"], UnknownNameError, "unknown schedule.kind 'step'; known: constant, cosine, linear"),
    (
        ["kind=sgd"],
        UnknownNameError,
        r"unknown field 'kind'; did you mean model\.kind or optimizer\.kind",
    ),
    (["optimizer.lr=x", "optimizer.kind=sgd"], SpecError, r"optimizer\.lr: must be of type float, got 'x'"),
    (["optimizer.kind=[1]"], UnknownNameError, "unknown optimizer.kind "),
    (["precision=float8"], UnknownNameError, "unknown precision 'float8'; known: bfloat16, float16, float32"),
    (["metric=1"], UnknownNameError, "unknown metric '1'; known: accuracy, loss"),
    (["batch"], SpecError, r"batch: an override reads field\.name=value"),
    (["batch=64.0"], SpecError, "batch: must be of type int, got 64.0"),
    (["batch=true"], SpecError, "batch: must be of type int, got True"),
    (["optimizer.lr=true"], SpecError, "optimizer.lr: must be of type float, got True"),
    (["optimizer.lr=fast"], SpecError, "optimizer.lr: must be of type float, got 'fast'"),
    (["model=5"], SpecError, "model: must be a table, got 5"),
    (["save=5"], SpecError, "save: must be a table, got 5"),
    (["model.hidden=16"], SpecError, "model.hidden: must be a list, got 16"),
    (["model.hidden=[16, 1.5]"], SpecError, "model.hidden: must be of type int, got 1.5"),
    (["name=5"], SpecError, "name: must be of type str, got 5"),
    (["batch=60", "accumulation=7"], SpecError, "accumulation: 60 samples / 7 micro-batches leaves 4"),
    (["mesh.data=3"], SpecError, "mesh.data: micro-batch of 64 / 1 = 64 samples over 3 devices leaves 1"),
]


@pytest.mark.parametrize(("texts", "error", "message"), ERRORS)
def test_an_override_that_cannot_be_is_refused(texts: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        override(preset("mlp-digits"), texts)


TOML_ERRORS: list[tuple[str, type[Exception], str]] = [
    ("name = ", SpecError, "spec: not valid TOML"),
    ("name = 'x'", SpecError, "model: is required"),
    ("[model]\nkind = 'mlp'", SpecError, "name: is required"),
    ("name = 'x'\nmodel = 3", SpecError, "model: must be a table, got 3"),
    (
        "name = 'x'\n[model]\nhidden = [8]",
        UnknownNameError,
        "unknown model.kind 'None'; known: cnn, gpt, linear, mlp",
    ),
    ("name = 'x'\n[model]\nkind = ['mlp']", UnknownNameError, "unknown model.kind "),
    (
        "name = 'x'\n[model]\nkind = 'mlp'\nwidth = 3",
        UnknownNameError,
        r"unknown field 'model\.width'; known: .*hidden",
    ),
    ("name = 'x'\nmodle = 1\n[model]\nkind = 'mlp'", UnknownNameError, "unknown field 'modle'; did you mean mode"),
]


@pytest.mark.parametrize(("text", "error", "message"), TOML_ERRORS)
def test_toml_that_is_no_spec_is_refused(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_toml(text)


def test_a_spec_that_is_no_table_is_refused() -> None:
    not_a_table: Any = [1]
    with pytest.raises(SpecError, match=r"must be a table, got \[1\]"):
        from_dict(not_a_table)


def test_load_lists_the_presets_and_says_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownNameError, match="unknown preset 'mlp'; known: cnn-digits, gpt-text, linear-regression, mlp-digits"
    ):
        load("mlp")
    with pytest.raises(SpecError, match=r"cannot read absent\.toml: No such file"):
        load("absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(SpecError, match=r"cannot read .*latin\.toml"):
        load(str(tmp_path / "latin.toml"))


def test_a_switch_of_kind_keeps_the_common_fields_and_takes_the_defaults_of_the_rest() -> None:
    spec = override(preset("gpt-text"), ["optimizer.lr=0.5", "optimizer.kind=sgd"])
    assert spec.optimizer == SgdSpec(lr=0.5, weight_decay=0.1, decay="matrices")
    back = override(spec, ["optimizer.kind=adamw"]).optimizer
    assert back == AdamSpec(kind="adamw", lr=0.5, weight_decay=0.1, decay="matrices")
    assert override(spec, ["optimizer.kind=sgd"]) == spec


def test_the_fields_of_the_new_kind_can_be_set_behind_the_switch() -> None:
    spec = override(preset("mlp-digits"), ["optimizer.kind=sgd", "optimizer.nesterov=true"])
    assert spec.optimizer == SgdSpec(lr=1e-3, weight_decay=1e-2, nesterov=True)


def test_a_switch_between_kinds_of_one_class_keeps_every_field() -> None:
    spec = override(preset("gpt-text"), ["optimizer.kind=adam"])
    assert spec.optimizer == replace(preset("gpt-text").optimizer, kind="adam")


CHANGES: dict[str, list[str]] = {
    "name": ["name=other"],
    "model": ["model.classes=11"],
    "data": ["data.validation=100"],
    "optimizer": ["optimizer.lr=0.5"],
    "schedule": ["schedule.horizon=77"],
    "precision": ["precision=float64"],
    "scaler": ["scaler.growth_interval=5"],
    "batch": ["batch=32"],
    "accumulation": ["accumulation=2"],
    "clip_norm": ["clip_norm=0.5"],
    "dropout": ["dropout.rate=0.2"],
    "seed": ["seed=1"],
    "steps": ["steps=5"],
    "save": ["save.every=7"],
    "validate_every": ["validate_every=3"],
    "metric": ["metric=loss"],
    "execution": ["execution.chunk=3"],
    "mesh": ["mesh.data=2"],
}


def test_the_table_of_changes_covers_every_field() -> None:
    assert set(CHANGES) == {field.name for field in fields(RunSpec)}
    assert set(FREE) < set(CHANGES)


@pytest.mark.parametrize("field", CHANGES)
def test_the_hash_and_the_differences_see_a_field_unless_it_is_free(field: str) -> None:
    spec = preset("mlp-digits")
    changed = override(spec, CHANGES[field])
    dotted = CHANGES[field][0].partition("=")[0]
    assert list(differences(spec, changed, free=())) == [dotted]
    assert list(differences(spec, changed)) == ([] if field in FREE else [dotted])
    assert (spec_hash(spec, "d") == spec_hash(changed, "d")) == (field in FREE)


def test_the_hash_covers_the_data_and_reads_as_32_hex_digits() -> None:
    spec = preset("mlp-digits")
    assert spec_hash(spec, "a") != spec_hash(spec, "b")
    assert len(bytes.fromhex(spec_hash(spec, "a"))) == 16


def test_differences_name_the_fields_of_another_kind() -> None:
    spec = preset("mlp-digits")
    changed = differences(spec, override(spec, ["optimizer.kind=sgd"]))
    assert changed["optimizer.kind"] == ("adamw", "sgd")
    assert changed["optimizer.beta1"] == (0.9, None)
    assert changed["optimizer.momentum"] == (None, 0.9)
