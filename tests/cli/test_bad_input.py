"""Bad input: one clear error with what, where, expected and got, and what to do; nothing is lost. Exit code 2."""

import importlib.util
import json
import shutil

import pytest

from parity.checkpoints import read_seal
from parity.cli import main
from parity.storage import read_lines

SMALL = ["--set", "model.hidden=[16]", "--set", "execution.chunk=5", "--set", "save.every=10"]


def _train(run, *extra, side="torch", steps=20):
    command = ["train", "--side", side, "--spec", "mlp-digits", "--dir", str(run), "--steps", str(steps)]
    return main([*command, *SMALL, *extra])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["check", "--spec", "mlp"],
            "unknown preset 'mlp'; known: cnn-digits, gpt-text, linear-regression, mlp-digits",
        ),
        (["check", "resumes"], "unknown check 'resumes'; known: handover, policy, resume, topology, twins"),
        (["check", "--sides", "mxnet"], "unknown side 'mxnet'; known: jax, torch"),
        (["train", "--side", "tf", "--spec", "mlp-digits", "--dir", "x"], "unknown side 'tf'; known: jax, torch"),
        (["check", "--set", "optimizer.rate=1"], "unknown field 'optimizer.rate'; did you mean optimizer."),
        (
            ["check", "--set", "optimizer.kind=lbfgs"],
            "unknown optimizer.kind 'lbfgs'; known: adadelta, adafactor, adagrad, adam, adamax, adamw",
        ),
        (["check", "--set", "batch=many"], "batch: must be of type int, got 'many'"),
        (["check", "--set", "batch"], "batch: an override reads field.name=value"),
        (["check", "--spec", "no/such.toml"], "spec: cannot read no/such.toml: No such file or directory"),
        (["check", "--steps", "10", "--kill-at", "10"], "--kill-at: 10 is not before the end at 10 steps"),
        (["check", "--set", "batch=63", "--set", "accumulation=2"], "63 samples / 2 micro-batches leaves 1"),
        (["check", "--set", "mesh.data=3"], "micro-batch of 64 / 1 = 64 samples over 3 devices leaves 1"),
        (["check", "--set", "dropout.rate=1.0"], "dropout.rate: must be in [0, 1), got 1.0"),
        (["check", "--set", "data.source=text"], "data.source: 'text' does not fit a model of kind 'mlp'"),
    ],
)
def test_a_wrong_request_is_one_line_that_names_it(command, message, capsys):
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("parity: error: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize("words", [["check", "--steps", "0"], ["train"], ["dance"], ["train", "--resume", "maybe"]])
def test_a_malformed_command_is_usage(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "usage: parity" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["file", "file/run", "link"])
@pytest.mark.parametrize(
    "command", [["train", "--side", "torch", "--spec", "mlp-digits", "--dir"], ["check", "policy", "--report"]]
)
def test_a_file_in_place_of_a_directory_is_named_before_anything_runs(command, path, tmp_path, capsys):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(SystemExit) as stop:
        main([*command, str(tmp_path / path)])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    named = tmp_path / path.removesuffix("/run")
    assert err.splitlines()[-1].endswith(f"argument {command[-1]}: {named} is not a directory; name another one")
    assert out == ""
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_result(path, capsys):
    assert main(["report", path]) == 2
    assert f"{path} cannot be read: {path} is not a regular file" in capsys.readouterr().err


def test_a_batch_larger_than_the_data_shows_the_arithmetic(tmp_path, capsys):
    assert _train(tmp_path / "run", "--set", "batch=1500") == 2
    assert (
        "1500 samples asked for, but 1797 samples - 360 for validation = 1437 to train on" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists(), "nothing is left behind"


def test_another_spec_names_each_field_with_both_values_but_free_fields_may_change(tmp_path, capsys):
    run = tmp_path / "run"
    assert _train(run) == 0
    before = sorted(p.name for p in (run / "checkpoints").iterdir())
    assert _train(run, "--set", "optimizer.lr=0.5", "--set", "seed=3") == 2
    err = capsys.readouterr().err
    assert "optimizer.lr: run has 0.001, asked for 0.5" in err
    assert "seed: run has 0, asked for 3" in err
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == before
    assert _train(run, "--set", "save.every=7", "--set", "validate_every=5", steps=25) == 0
    assert "resumed from step 20 (latest)" in capsys.readouterr().out


@pytest.mark.takes_seconds
def test_a_directory_with_a_run_is_refused_for_a_new_one(tmp_path, capsys):
    run = tmp_path / "run"
    assert _train(run) == 0
    records = (run / "steps.jsonl").read_bytes()
    assert _train(run, "--resume", "never") == 2
    assert "holds a run already; choose another --dir, or --resume auto" in capsys.readouterr().err
    assert _train(run, side="jax") == 2
    assert "holds a run of side 'torch', not 'jax'" in capsys.readouterr().err
    assert (run / "steps.jsonl").read_bytes() == records


def test_a_directory_with_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("precious")
    assert _train(tmp_path) == 2
    assert "is not empty and holds no run" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.takes_seconds("jax")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_no_whole_checkpoint_says_what_was_found_and_why_it_does_not_count(side, tmp_path, capsys):
    run = tmp_path / "run"
    assert _train(run, side=side) == 0
    for step in (10, 20):
        victim = run / "checkpoints" / str(step)
        (victim / "_CHECKPOINT_METADATA" if side == "jax" else victim / "state.pt").unlink()
    (run / "checkpoints" / ".draft-30-1").mkdir()
    (run / "checkpoints" / "30 copy").mkdir()
    reason = f"{'_CHECKPOINT_METADATA' if side == 'jax' else 'state.pt'} is missing"
    for resume in ("auto", "latest", "20"):
        assert _train(run, "--resume", resume, side=side) == 2
        out, err = capsys.readouterr()
        assert "no whole" in err
        assert f"10: {reason}" in err
        assert f"20: {reason}" in err
        assert "30 copy: has not got its final name" in err
        assert ("removed .draft-30-1: the leftover of a save" in out) == (resume == "auto"), "once, and said"
    names = {entry.name for entry in (run / "checkpoints").iterdir()}
    assert names == {"10", "20", "30 copy"}, "nothing else is deleted, and nothing is moved"


@pytest.mark.takes_seconds("jax")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_flipped_bit_names_the_file_and_the_leaf_and_the_run_goes_on_from_the_one_before(
    side, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)  # as with files of gigabytes: only a restore reads them
    run = tmp_path / "run"
    assert _train(run, side=side) == 0
    leaf = "optimizer.second_moment.layers.0.weight"
    place = read_seal(run / "checkpoints" / "20").places[leaf][-1]
    victim = run / "checkpoints" / "20" / place.file
    data = bytearray(victim.read_bytes())
    data[place.start + place.size // 2] ^= 1
    victim.write_bytes(data)
    capsys.readouterr()
    assert _train(run, "--resume", "20", side=side, steps=30) == 2
    err = capsys.readouterr().err
    assert f"20 is not what was sealed:\n  {place.file}: does not hold the bytes that were sealed" in err
    assert leaf in err
    assert (run / "checkpoints" / "20").is_dir(), "asked for by its step it stays where it is"
    assert _train(run, side=side, steps=30) == 0
    out = capsys.readouterr().out
    moved = out[out.index("moved checkpoint 20 to abandoned/1: ") :]
    assert place.file in moved
    assert leaf in moved
    assert "10 steps are lost with it and trained again" in out
    assert "resumed from step 10 (latest)" in out


@pytest.mark.takes_seconds
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_checkpoint_without_a_seal_is_taken_only_by_its_step_and_that_is_said(side, tmp_path, capsys):
    run = tmp_path / "run"
    assert _train(run, side=side) == 0
    for step in (10, 20):
        (run / "checkpoints" / str(step) / "seal.json").unlink()
    for resume in ("auto", "latest", "best"):
        assert _train(run, "--resume", resume, side=side, steps=30) == 2
        assert "20: has no seal: seal.json is missing; --resume 20 takes it unverified" in capsys.readouterr().err
    assert _train(run, "--resume", "20", side=side, steps=30) == 0
    out = capsys.readouterr().out
    assert "checkpoint 20 has no seal: restored unverified" in out
    assert "resumed from step 20 (step)" in out


@pytest.mark.takes_seconds("jax")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_damaged_newer_checkpoint_is_moved_aside_and_named(side, tmp_path, capsys):
    run = tmp_path / "run"
    assert _train(run, side=side) == 0
    shutil.rmtree(run / "checkpoints" / "20" / "meta") if side == "jax" else (
        run / "checkpoints" / "20" / "state.pt"
    ).write_bytes(b"short")
    assert _train(run, side=side, steps=30) == 0
    out = capsys.readouterr().out
    assert "moved checkpoint 20 to abandoned/1: " in out
    assert "meta/metadata: is missing" in out if side == "jax" else "state.pt: has 5 bytes" in out
    assert "resumed from step 10 (latest)" in out
    assert (run / "abandoned" / "1" / "20").is_dir()
    assert (run / "checkpoints" / "30").is_dir()


def test_resuming_what_was_never_started_is_refused(tmp_path, capsys):
    assert _train(tmp_path / "run", "--resume", "latest") == 2
    assert "holds no run to resume; use --resume auto to start one" in capsys.readouterr().err


@pytest.mark.takes_seconds
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(side, tmp_path, capsys):
    run = tmp_path / "run"
    wild = [
        "--set",
        "optimizer.kind=sgd",
        "--set",
        "clip_norm=0.0",
        "--set",
        "save.every=1",
        "--set",
        "optimizer.lr=1e9",
    ]
    assert _train(run, *wild, side=side) == 1
    err = capsys.readouterr().err
    last = read_lines(run / "steps.jsonl")[-1]
    assert f"step {last['step']}: " in err
    assert "there is no loss scaler to skip the step" in err
    assert f"the last checkpoint is of step {last['step'] - 1}" in err
    assert (run / "checkpoints" / str(last["step"] - 1)).is_dir()
    assert not (run / "checkpoints" / str(last["step"])).exists()


@pytest.mark.takes_seconds("jax")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_twenty_skips_in_a_row_stop_the_run_and_nineteen_do_not(side, tmp_path, capsys):
    def overflow(first, last):
        return ["--precision", "float16", "--set", f"scaler.overflow_steps={list(range(first, last + 1))}"]

    assert _train(tmp_path / "a", *overflow(3, 21), side=side, steps=24) == 0
    assert _train(tmp_path / "b", *overflow(3, 40), side=side, steps=40) == 1
    assert "step 22: 20 steps in a row skipped for overflow" in capsys.readouterr().err
    assert {p.name for p in (tmp_path / "b" / "checkpoints").iterdir()} == {"10", "20"}, "what was good stays"


def test_the_row_of_skips_is_counted_over_a_resume(tmp_path, capsys):
    steps = ["--precision", "float16", "--set", f"scaler.overflow_steps={list(range(8, 40))}"]
    assert _train(tmp_path / "run", *steps, steps=15) == 0
    assert _train(tmp_path / "run", *steps, steps=40) == 1
    assert "step 27: 20 steps in a row skipped" in capsys.readouterr().err


def test_another_thread_count_goes_on_and_says_what_not_to_expect(tmp_path, capsys):
    assert _train(tmp_path / "run") == 0
    assert _train(tmp_path / "run", "--set", "execution.threads=2", steps=30) == 0
    out = capsys.readouterr().out
    assert "topology changed (threads 1 -> 2): continuing, but bitwise equality is not to be expected" in out


@pytest.mark.takes_seconds
def test_another_device_count_goes_on_and_says_what_not_to_expect(tmp_path, capsys):
    assert _train(tmp_path / "run", side="jax") == 0
    assert _train(tmp_path / "run", "--set", "mesh.data=2", side="jax", steps=30) == 0
    assert "topology changed (devices 1 -> 2)" in capsys.readouterr().out


@pytest.mark.takes_seconds("jax")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_steps_already_done_are_said_to_be_and_exit_0(side, tmp_path, capsys):
    assert _train(tmp_path / "run", side=side) == 0
    assert _train(tmp_path / "run", side=side, steps=15) == 0
    assert "nothing to do: the run is at step 20, and 15 steps were asked for" in capsys.readouterr().out


@pytest.mark.parametrize(("side", "module"), [("jax", "orbax"), ("torch", "torch")])
def test_a_missing_framework_is_one_line_with_the_extra(side, module, tmp_path, monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == module else real(name, *a))
    assert _train(tmp_path / "run", side=side) == 2
    message = f"side '{side}' needs the module '{module}': pip install 'parity-suite[{side}]'"
    assert capsys.readouterr().err == f"parity: error: {message}\n"


def test_going_on_from_an_older_step_moves_the_newer_to_abandoned(tmp_path, capsys):
    run = tmp_path / "run"
    assert _train(run, "--set", "validate_every=10", steps=30) == 0
    assert _train(run, "--set", "validate_every=10", "--resume", "10", steps=20) == 0
    assert "resumed from step 10 (step)" in capsys.readouterr().out
    assert sorted(p.name for p in (run / "abandoned" / "1").iterdir()) == [
        "20",
        "30",
        "steps.jsonl",
        "validations.jsonl",
    ]
    assert [row["step"] for row in read_lines(run / "steps.jsonl")] == list(range(1, 21))
    assert json.loads((run / "latest.json").read_text())["step"] == 20
