"""What is asked for by name is that checkpoint, or an error that names the next whole one; metrics have a range."""

import json
import shutil

import pytest

from parity.checkpoints import read_seal, verify
from parity.cli import main
from parity.runs import RunDirectory
from parity.spec import from_toml, load, to_toml
from parity.storage import read_lines
from tests.support.sealed import flip

SPEC = load("mlp-digits", None, ["model.hidden=[16]", "execution.chunk=5", "save.every=10", "validate_every=10"])


def parity(*words):
    return main([str(word) for word in words])


def train(home, name, seed, side="torch"):
    file = home / f"{name}.toml"
    file.write_text(to_toml(SPEC).replace("seed = 0", f"seed = {seed}"))
    assert parity("train", "--side", side, "--spec", file, "--dir", home / name, "--steps", 30) == 0
    return RunDirectory(home / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return two runs of one spec with other seeds."""
    home = tmp_path_factory.mktemp("runs")
    return train(home, "one", 0), train(home, "two", 1)


@pytest.fixture
def run(runs, tmp_path):
    """Return a copy of the first run, step 20 its best by a late metric, step 10 the next."""
    copied = RunDirectory(shutil.copytree(runs[0].path, tmp_path / "run"))
    for step, value in ((10, 0.97), (20, 0.99), (30, 0.5)):
        copied.store.note_metric(step, value, from_toml(copied.identity_text()).plan)
    return copied


def truncate(path):
    (path / "state.pt").write_bytes((path / "state.pt").read_bytes()[:1000])


HARMS = {"truncated": truncate, "removed": shutil.rmtree, "unsealed": lambda path: (path / "seal.json").unlink()}


@pytest.mark.takes_seconds("truncated-best")
@pytest.mark.parametrize("which", ["best", "latest", "20"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_checkpoint_is_not_replaced_by_another_without_a_word(harm, which, run, tmp_path, capsys):
    HARMS[harm](run.checkpoints / ("30" if which == "latest" else "20"))
    next_step = {"best": 10, "latest": 20}.get(which)
    for command in (["path", run.path, which], ["export", run.path, which, tmp_path / "out"]):
        if (harm, which) == ("unsealed", "20"):
            continue  # named by its step: taken unverified by a resume, refused by an export
        assert parity(*command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert not (tmp_path / "out").exists()
        if next_step is None:
            assert "no whole checkpoint of step 20" in err
        else:
            assert f"the next one that is: step {next_step}" in err
            assert "--or-next takes it" in err


@pytest.mark.parametrize(("which", "damaged", "step"), [("best", 20, 10), ("latest", 30, 20)])
@pytest.mark.parametrize("harm", [truncate, lambda path: flip(path / "state.pt", 20_000)], ids=["cut", "bit"])
def test_the_next_whole_one_is_taken_where_that_was_asked_for(
    harm, which, damaged, step, run, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)  # as with files of gigabytes: only an export reads them
    harm(run.checkpoints / str(damaged))
    assert parity("export", run.path, which, tmp_path / "out") == 2
    assert f"step {step}" in capsys.readouterr().err
    assert parity("export", run.path, which, tmp_path / "out", "--or-next") == 0
    assert f"step {step} of" in capsys.readouterr().out
    assert read_seal(tmp_path / "out").step == step
    assert verify(tmp_path / "out").whole


@pytest.mark.parametrize("value", ["inf", "-inf", "-0.5", "1.5", "1e300"])
def test_a_metric_outside_of_its_range_is_refused(value, run, capsys):
    before = read_lines(run.metrics)
    assert parity("metric", run.path, 10, "--", value) == 2
    assert "accuracy must be from 0 to 1, or nan" in capsys.readouterr().err
    assert read_lines(run.metrics) == before
    assert run.store.pointed("best").step == 20


def test_a_metric_within_its_range_is_taken_and_nan_is_never_best(run, capsys):
    assert parity("metric", run.path, 20, "nan") == 0
    assert run.store.pointed("best").step == 10
    assert parity("metric", run.path, 30, "1") == 0
    assert run.store.pointed("best").step == 30
    assert "step 30: accuracy 1" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["inf", "-1e-9", "-inf"])
def test_a_loss_has_a_range_too(value, run, capsys):
    text = (run.path / "spec.toml").read_text()
    (run.path / "spec.toml").write_text(text.replace('metric = "accuracy"', 'metric = "loss"'))
    assert parity("metric", run.path, 10, "--", value) == 2
    assert "loss must be finite and at least 0, or nan" in capsys.readouterr().err


def test_an_infinite_metric_that_was_written_before_is_never_best(run):
    """The command took such a value once."""
    (saved,) = [s for s in run.store.scan().whole if s.step == 10]
    row = {"step": 10, "saved_at": saved.saved_at, "metric": "inf"}
    with run.metrics.open("a") as file:
        file.write(json.dumps(row) + "\n")
    run.store.point(run.store.scan(), from_toml(run.identity_text()).plan)
    assert run.store.pointed("best").step == 20


def test_verifying_finds_a_checkpoint_of_another_run(runs, tmp_path, capsys):
    one, two = (RunDirectory(shutil.copytree(run.path, tmp_path / run.path.name)) for run in runs)
    assert parity("verify", one.path) == 0
    shutil.rmtree(one.checkpoints / "30")
    shutil.copytree(two.checkpoints / "30", one.checkpoints / "30")
    capsys.readouterr()
    for path in (one.path, one.checkpoints / "30"):
        assert parity("verify", path) == 1
        out = capsys.readouterr().out
        assert "seal.json: belongs to another run: sealed with the hash" in out
    assert parity("verify", one.checkpoints / "20") == 0
    (one.path / "attempts.jsonl").write_text('{"attempt": 0, "resumed_from": null}\n')  # as an older version wrote it
    assert parity("verify", one.path) == 1
    assert "belongs to another run" in capsys.readouterr().out


def test_a_start_sets_a_checkpoint_of_another_run_aside_and_takes_the_one_before(runs, tmp_path, capsys):
    one, two = (RunDirectory(shutil.copytree(run.path, tmp_path / run.path.name)) for run in runs)
    shutil.rmtree(one.checkpoints / "30")
    shutil.copytree(two.checkpoints / "30", one.checkpoints / "30")
    spec = tmp_path / "spec.toml"
    spec.write_text(to_toml(SPEC))
    assert parity("train", "--side", "torch", "--spec", spec, "--dir", one.path, "--steps", 33) == 0
    out = capsys.readouterr().out
    assert "moved checkpoint 30 to abandoned/1: " in out
    assert "another run" in out
    assert "resumed from step 20 (latest)" in out
