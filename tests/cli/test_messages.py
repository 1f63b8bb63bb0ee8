"""Messages are sentences: no bare exception of Python, no wrong number, no list of 45 names; BOMs are read."""

import codecs
import json
import re
import shutil

import pytest

from parity.cli import main
from parity.errors import UnknownNameError, explain
from parity.policy import Rules
from parity.spec import SaveSpec, load, to_toml
from tests.report.samples import RESUME, bench_written, benchmark, ratio, written

SMALL = ["--set", "model.hidden=[8]", "--set", "save.every=10", "--set", "validate_every=10"]


def train(run, *extra, steps=20):
    command = ["train", "--side", "torch", "--spec", "mlp-digits", "--dir", str(run), "--steps", str(steps)]
    return main([*command, *SMALL, *extra])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    assert train(path) == 0
    return path


@pytest.fixture
def run(trained, tmp_path, capsys):
    capsys.readouterr()
    return shutil.copytree(trained, tmp_path / "run")


def test_the_last_line_of_a_run_says_what_it_reached_and_how_to_resume(tmp_path, capsys):
    assert train(tmp_path / "run") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    checkpoint = re.escape(str(tmp_path / "run" / "checkpoints" / "20"))
    assert re.fullmatch(
        rf"done: step 20, loss \d\.\d+, best accuracy 0\.\d+ at step [12]0, checkpoint {checkpoint}, \d+\.\d s; "
        "repeat the command with --steps above 20 to resume",
        last,
    )
    loss = json.loads((tmp_path / "run" / "steps.jsonl").read_text().splitlines()[-1])["loss"]
    assert f"loss {loss:.6g}," in last
    assert train(tmp_path / "run", steps=30) == 0, "and it is true"
    assert "resumed from step 20" in capsys.readouterr().out


def test_a_run_without_a_validation_has_no_best(tmp_path, capsys):
    assert train(tmp_path / "run", "--set", "validate_every=0") == 0
    assert ", no best accuracy yet, " in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(("steps", "asked"), [(15, 15), (20, 20)])
def test_nothing_to_do_says_why_and_what_to_do(steps, asked, run, capsys):
    assert train(run, steps=steps) == 0
    said = f"nothing to do: the run is at step 20, and {asked} steps were asked for; give --steps above 20 to resume"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "is not a seal: it has no 'schema'"),
        ('{"schema": "parity.seal/2"}', "is not a seal: it has no 'algorithm'"),
        ('{"schema": [], "algorithm": "x"}', "is not a seal: written as [] with 'x', this version reads"),
    ],
)
def test_a_seal_that_lacks_a_field_is_a_sentence(text, said, run, capsys):
    (run / "checkpoints" / "20" / "seal.json").write_text(text)
    assert main(["verify", str(run)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert "Error(" not in out


@pytest.mark.parametrize(("count", "said"), [(1, "1 unreadable line of"), (2, "2 unreadable lines of")])
def test_unreadable_lines_are_counted_in_english(count, said, run, capsys):
    with (run / "steps.jsonl").open("a") as file:
        file.write("\0\0\n" * count)
    assert train(run, steps=25) == 0
    assert f"moved {said} steps.jsonl to steps.jsonl.damaged" in capsys.readouterr().out


def test_a_renamed_checkpoint_costs_the_steps_that_were_recorded(run, capsys):
    (run / "checkpoints" / "20").rename(run / "checkpoints" / "999")
    assert train(run, steps=25) == 0
    out = capsys.readouterr().out
    assert "moved checkpoint 999 to abandoned/1: " in out
    assert "10 steps are lost with it and trained again" in out
    assert "989" not in out


def test_verifying_the_folder_of_the_checkpoints_verifies_the_run(run, capsys):
    assert main(["verify", str(run / "checkpoints")]) == 0
    assert capsys.readouterr().out.count("whole ") == 2


def test_nan_is_not_called_negative():
    with pytest.raises(ValueError, match=r"must be (finite|at least 0), got nan"):
        SaveSpec(keep_seconds=float("nan"))
    with pytest.raises(ValueError, match="no other rule negative or NaN"):
        Rules(mode="min", keep_seconds=float("nan"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optimizer.rl=1", "unknown field 'optimizer.rl'; did you mean optimizer.lr"),
        ("bacth=3", "unknown field 'bacth'; did you mean batch?"),
        ("lr=1", "unknown field 'lr'; did you mean optimizer.lr?"),
        ("batch.size=1", "unknown field 'batch.size'; did you mean batch?"),
    ],
)
def test_a_wrong_field_gets_the_one_that_was_meant(override, said, capsys):
    assert main(["spec", "mlp-digits", "--set", override]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err) < 160, "not all of the names"


def test_where_nothing_is_close_all_names_stand_and_how_to_list_them(capsys):
    assert main(["spec", "mlp-digits", "--set", "zzzz=1"]) == 2
    err = capsys.readouterr().err
    assert "known: accumulation, batch, " in err
    assert "`parity spec PRESET` prints them with their values" in err
    assert main(["spec", "mlp-digits"]) == 0
    assert capsys.readouterr().out == to_toml(load("mlp-digits"))


def test_a_short_list_of_names_is_always_shown():
    shown = str(UnknownNameError("side", "jaxx", ["jax", "torch"]))
    assert shown == "unknown side 'jaxx'; known: jax, torch; did you mean jax?"
    assert str(UnknownNameError("side", "other", ["jax", "torch"])) == "unknown side 'other'; known: jax, torch"
    assert explain(KeyError("a")) == "it has no 'a'"


def with_mark(path):
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    return str(path)


def test_a_byte_order_mark_is_read(tmp_path, run, capsys):
    """Editors on Windows write one."""
    (tmp_path / "my.toml").write_text(to_toml(load("mlp-digits")))
    assert main(["spec", with_mark(tmp_path / "my.toml")]) == 0
    assert main(["report", with_mark(written(tmp_path / "check.json", [RESUME]))]) == 0
    bench = bench_written(tmp_path / "bench.json", benchmark("x", ratios={"r": ratio(1.0, 1.02)}))
    assert main(["report", with_mark(bench)]) == 0
    (tmp_path / "curve.csv").write_text("step,metric\n10,0.5\n")
    assert main(["policy", "simulate", with_mark(tmp_path / "curve.csv")]) == 0
    (tmp_path / "curve.jsonl").write_text('{"step": 10, "value": 0.5}\n')
    assert main(["policy", "simulate", with_mark(tmp_path / "curve.jsonl")]) == 0
    with_mark(run / "steps.jsonl")
    with_mark(run / "spec.toml")
    assert train(run, steps=25) == 0
    assert "resumed from step 20" in capsys.readouterr().out
