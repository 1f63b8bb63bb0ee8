"""Intervals in epochs become steps by the run's own data, before anything is hashed, recorded or trained."""

from pathlib import Path
from typing import Any

import pytest

from parity.cli.main import main
from parity.errors import SpecError
from parity.reference import epochs_spec
from parity.runs import RunDirectory
from parity.spec import RunSpec, from_dict, from_toml, load, override, preset, spec_hash, to_toml
from parity.twins import batches_per_epoch, load_dataset, open_stream

BATCHES = 22
"""(1,797 - 360) digits in batches of 64."""


@pytest.mark.parametrize("name", ["mlp-digits", "gpt-text"])
@pytest.mark.parametrize("batch", [16, 100])
def test_an_epoch_has_as_many_batches_as_the_stream_gives_it(name: str, batch: int) -> None:
    spec = load(name, None, [f"batch={batch}"])
    batches = batches_per_epoch(spec)
    epochs = open_stream(spec, load_dataset(spec)).take(batches + 1).epochs
    assert epochs == [0] * batches + [1]


@pytest.mark.parametrize(
    ("field", "text", "steps"),
    [
        ("steps", "5 epochs", 5 * BATCHES),
        ("save.every", "1 epoch", BATCHES),
        ("save.every", "2 epochs", 2 * BATCHES),
        ("validate_every", "1 epochs", BATCHES),
    ],
)
def test_a_number_of_epochs_is_that_many_steps(field: str, text: str, steps: int, tmp_path: Path) -> None:
    expected = load("mlp-digits", None, [f"{field}={steps}"])
    for value in (text, f'"{text}"'):
        assert load("mlp-digits", None, [f"{field}={value}"], batches_per_epoch) == expected
    file = tmp_path / "spec.toml"
    value_now = f"{field.rpartition('.')[2]} = "
    lines = to_toml(preset("mlp-digits")).splitlines()
    wanted = {i for i, line in enumerate(lines) if line.startswith(value_now) and in_table(lines, i) == field}
    file.write_text("\n".join(f'{value_now}"{text}"' if i in wanted else line for i, line in enumerate(lines)))
    assert len(wanted) == 1
    assert load(str(file), None, [], batches_per_epoch) == expected
    assert load(str(file), None, [f"{field}=7"], batches_per_epoch) == load("mlp-digits", None, [f"{field}=7"])


def in_table(lines: list[str], i: int) -> str:
    """Return the dotted name of the field in a line of TOML."""
    table = next((line.strip("[]") + "." for line in lines[:i][::-1] if line.startswith("[")), "")
    return table + lines[i].partition(" ")[0]


def test_epochs_of_a_file_follow_a_batch_that_is_overridden(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('name = "a"\nsteps = "2 epochs"\n[model]\nkind = "mlp"\n')
    found = load(str(tmp_path / "spec.toml"), None, ["batch=100"], batches_per_epoch)
    assert found.steps == 2 * (1437 // 100)


def test_a_run_in_epochs_is_the_run_in_steps() -> None:
    epochs = load("mlp-digits", None, ["save.every=1 epoch", "steps=5 epochs"], batches_per_epoch)
    steps = load("mlp-digits", None, [f"save.every={BATCHES}", f"steps={5 * BATCHES}"])
    assert to_toml(epochs) == to_toml(steps)
    assert spec_hash(epochs, "data") == spec_hash(steps, "data") == spec_hash(preset("mlp-digits"), "data")


@pytest.mark.parametrize(
    "text", ["0 epochs", "-1 epochs", "1.5 epochs", "one epoch", "1epoch", "5 epoch s", "9e9 epochs"]
)
def test_what_is_no_number_of_epochs_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"save\.every: must be of type int"):
        load("mlp-digits", None, [f'save.every="{text}"'], batches_per_epoch)


def test_more_steps_than_a_run_can_have_are_refused() -> None:
    with pytest.raises(SpecError, match=r"steps: '999999999 epochs' of 22 batches are 21999999978 steps, more than"):
        load("mlp-digits", None, ["steps=999999999 epochs"], batches_per_epoch)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("schedule.horizon", lambda: load("mlp-digits", None, ["schedule.horizon=2 epochs"], batches_per_epoch)),
        ("save.every", lambda: load("mlp-digits", None, ["save.every=1 epoch"])),
        ("save.every", lambda: override(preset("mlp-digits"), ["save.every=1 epoch"])),
        ("steps", lambda: from_dict({"name": "a", "model": {"kind": "mlp"}, "steps": "1 epoch"})),
        ("steps", lambda: from_toml('name="a"\nsteps="1 epoch"\n[model]\nkind="mlp"')),
    ],
)
def test_epochs_elsewhere_are_refused_with_the_fields_that_take_them(field: str, make: Any) -> None:
    with pytest.raises(SpecError, match=rf"{field}: '\d epochs?': only steps, save\.every and validate_every"):
        make()


@pytest.mark.takes_seconds
def test_a_run_is_trained_for_epochs_and_continued_for_more(tmp_path: Path, capsys: Any) -> None:
    command = ["train", "--side", "torch", "--spec", "mlp-digits", "--dir", str(tmp_path / "run")]
    command += ["--set", "model.hidden=[4]", "--set", "save.every=1 epoch", "--set", 'validate_every="2 epochs"']
    for epochs, newest in (("2", [BATCHES, 2 * BATCHES]), ("3", [BATCHES, 2 * BATCHES, 3 * BATCHES])):
        assert main([*command, "--epochs", epochs]) == 0
        run = RunDirectory(tmp_path / "run")
        assert [saved.step for saved in run.store.scan().whole] == newest
        spec: RunSpec = from_toml(run.identity_text())
        assert (spec.steps, spec.save.every, spec.validate_every) == (newest[-1], BATCHES, 2 * BATCHES)
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--epochs", "2", "--steps", "5"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_classic_experiment_is_five_epochs_before_the_kill_and_five_after() -> None:
    spec, kill = epochs_spec(preset("mlp-digits"))
    assert (spec.steps, spec.save.every, spec.validate_every) == (10 * BATCHES, BATCHES, BATCHES)
    assert 5 * BATCHES < kill < 6 * BATCHES, "after the save of the fifth epoch"
