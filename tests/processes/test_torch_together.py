"""Several PyTorch processes of one run: the curve of one device, one checkpoint that all write, one end for all."""

import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torch_side
from parity.checkpoints import read_seal, verify
from parity.cli import main
from parity.errors import CheckpointError
from parity.runs import RunDirectory
from parity.spec import MeshSpec, load
from parity.state import leaf_digests
from parity.storage import read_lines
from tests.support.several import Several, trained

pytestmark = pytest.mark.processes

SMALL = ["model.hidden=[16,8]", "execution.chunk=2", "save.every=8", "validate_every=8", "accumulation=2"]
FSDP, DATA = [*SMALL, "mesh.fsdp=2"], [*SMALL, "mesh.data=2"]
ENDLESS = [*FSDP, "steps=1000000", "save.every=500000", "validate_every=500000"]
WITHIN = 1e-12
"""Relative, in float64: the bar of the suite for equal semantics."""

PLANTED = """
import os, sys
import numpy as np
import torch
import parity.checkpoints.saving as saving
import torch_side.shards as shards
import torch_side.sharding as sharding
import torch_side.processes as processes
from parity.cli import main
def full(*args, **kwargs):
    raise OSError(28, "No space left on device")
{planted}
sys.exit(main(sys.argv[1:]))
"""
"""`parity`, with a fault."""


def alone(overrides, steps, precision="float64", preset="mlp-digits"):
    """Return the trainer of the same run on one device, in this process, and its records."""
    spec = load(preset, precision, overrides)
    trainer = torch_side.build(replace(spec, mesh=MeshSpec(), steps=steps))
    return trainer, list(trainer.steps(steps))


def distance(records, rows):
    """Return the largest relative difference of losses and norms; all else must be the same."""
    assert len(records) == len(rows) > 0
    for name in ("batch", "epoch", "samples", "lr", "loss_scale", "skipped", "step"):
        assert [getattr(record, name) for record in records] == [row[name] for row in rows], name
    both = ("loss", "grad_norm")
    pairs = [(getattr(a, name), float(b[name])) for a, b in zip(records, rows, strict=True) for name in both]
    return max(0.0 if a == b else abs(a - b) / abs(a) for a, b in pairs)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two processes with sharded parameters, and two others that resume them."""
    home = tmp_path_factory.mktemp("sharded")
    first = trained(home, "mlp-digits", FSDP, "--trace-state", steps=16, precision="float64")
    second = trained(home, "mlp-digits", FSDP, "--trace-state", steps=24, precision="float64")
    return home, first, second


def test_two_processes_train_one_run_and_write_each_record_once(home):
    path, first, second = home
    run = RunDirectory(path / "run")
    assert "starting from step 0" in first
    assert "resumed from step 16 (latest)" in second
    assert [row["step"] for row in read_lines(run.steps)] == list(range(1, 25))
    assert [row["step"] for row in read_lines(run.validations)] == [8, 16, 24]
    assert [row["topology"]["mesh"] for row in read_lines(run.attempts)] == [{"data": 1, "fsdp": 2, "model": 1}] * 2
    assert [saved.step for saved in run.store.scan().whole] == [8, 16, 24]
    for saved in run.store.scan().whole:
        assert verify(run.checkpoints / str(saved.step)).whole


def test_the_curve_is_that_of_one_device(home):
    path, _, _ = home
    _, records = alone(FSDP, 24)
    assert distance(records, read_lines(RunDirectory(path / "run").steps)) <= WITHIN


def test_others_restore_bit_for_bit_what_was_saved(home):
    path, _, _ = home
    states = {(row["event"], row["attempt"]): row["leaves"] for row in read_lines(RunDirectory(path / "run").states)}
    ended, began = states["final", 0], states["restored", 1]
    assert len(ended) > 20
    assert {leaf: text for leaf, text in ended.items() if leaf != "config.spec"} == {
        leaf: text
        for leaf, text in began.items()
        if leaf != "config.spec"  # names the steps, which are more now
    }


def test_one_process_restores_bit_for_bit_what_two_have_saved(home):
    path, _, _ = home
    spec = replace(load("mlp-digits", "float64", FSDP), mesh=MeshSpec(), steps=24)
    trainer = torch_side.build(spec, path / "run")
    assert trainer.restore(24) == 24
    found = leaf_digests(trainer.export_state())
    sealed = dict(read_seal(path / "run" / "checkpoints" / "24").leaves)
    assert {**found, "config.spec": ""} == {**sealed, "config.spec": ""}


def test_whatever_reads_a_checkpoint_of_one_process_reads_that_of_two(home, capsys, tmp_path):
    path, _, _ = home
    saved = path / "run" / "checkpoints" / "24"
    model = torch_side.load_model(path / "run", 24)
    content = torch.load(saved / "state.pt", weights_only=True)
    assert all(torch.equal(value, content["model"][name]) for name, value in model.state_dict().items())
    for words in (["verify", path / "run"], ["inspect", saved], ["compare", saved, saved]):
        assert main([str(word) for word in words]) == 0, words
    converted = tmp_path / "converted.pt"
    assert main(["convert", str(saved), str(converted), "--to", "torch.save"]) == 0, capsys.readouterr()
    found = torch.load(converted, weights_only=True)["model"]
    assert all(torch.equal(found[name], value) for name, value in content["model"].items())


def test_two_with_replicas_resume_what_two_with_shards_have_saved(home, tmp_path):
    path, _, _ = home
    shutil.copytree(path / "run", tmp_path / "run")
    out = trained(tmp_path, "mlp-digits", DATA, steps=32, precision="float64")
    assert "resumed from step 24 (latest)" in out
    assert "topology changed (mesh " in out
    _, records = alone(FSDP, 32)
    assert distance(records, read_lines(RunDirectory(tmp_path / "run").steps)) <= WITHIN


def test_a_flipped_bit_is_refused_by_all_and_the_one_before_is_restored(home, tmp_path):
    path, _, _ = home
    shutil.copytree(path / "run", tmp_path / "run")
    damaged = tmp_path / "run" / "checkpoints" / "24" / "state.pt"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    out = trained(tmp_path, "mlp-digits", FSDP, steps=26, precision="float64")
    assert "resumed from step 16 (latest)" in out
    assert "moved checkpoint 24 to abandoned/2: " in out


@pytest.mark.parametrize("killed", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_when_one_is_killed_the_other_ends_and_says_which_in_one_line(killed, tmp_path):
    with Several(tmp_path, "mlp-digits", ENDLESS) as pair:
        pair.wait_for_steps()
        pair[killed].kill()
        code, _, err = pair.end(1 - killed, seconds=20)
    assert code == 3, err
    gone = rf"parity: error: process {killed} of 2 \({pair[killed].pid} on .+\) is gone: killed, crashed or cut off;"
    assert re.match(gone, err), err
    assert len(err.splitlines()) == 1, err
    assert not pair.run.store.scan().damaged


@pytest.mark.parametrize("heard", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_a_signal_to_either_saves_the_same_step_in_both(heard, tmp_path):
    with Several(tmp_path, "mlp-digits", ENDLESS) as pair:
        pair.wait_for_steps()
        pair[heard].send_signal(signal.SIGTERM)
        codes = pair.ends()
    assert [code for code, _, _ in codes] == [128 + signal.SIGTERM] * 2, codes
    last = read_lines(pair.run.steps)[-1]["step"]
    assert f"SIGTERM: saved step {last}" in codes[0][1]
    assert [saved.step for saved in pair.run.store.scan().whole] == [last]
    assert verify(pair.run.checkpoints / str(last)).whole


FAULTS = {
    "the seal of process 0": (0, "if processes.index() == 0: saving.commit = full"),
    "the layout of the file": (0, "shards.lay_out_content = full"),
    "the shards of process 1": (1, "if os.environ['RANK'] == '1': shards.write_at = full"),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[] if "process 1" in name else pytest.mark.soak) for name in FAULTS]
)
def test_a_save_that_fails_in_one_ends_both_and_both_say_why(fault, tmp_path):
    index, planted = FAULTS[fault]
    script = tmp_path / "failing.py"
    script.write_text(PLANTED.format(planted=planted.replace("processes.index() == 0", "os.environ['RANK'] == '0'")))
    with Several(tmp_path, "mlp-digits", FSDP, "--steps", "100", script=script) as pair:
        codes = pair.ends(40)
    for code, _, err in codes:
        assert code == 3, codes
        assert f"process {index}: " in err, codes
        assert "No space left on device" in err, codes
        assert len(err.splitlines()) == 1, codes
    assert pair.run.store.scan().whole == []
    assert not list(pair.run.checkpoints.glob(".draft-*"))


WRONG = {
    "a local norm": "sharding.ShardedModel.total = lambda self, norms: torch.linalg.vector_norm(torch.stack(norms))",
    "gradients averaged": "sharding.FSDPModule.set_gradient_divide_factor = lambda self, factor: None",
    "the samples of another process": "sharding.ShardedModel.mean = lambda self, losses: losses",
    "the same dropout everywhere": (
        "import torch_side.dropout as dropout\n"
        "dropout.Dropout.share = property(lambda self: 0, lambda self, value: None)"
    ),
}


@pytest.mark.parametrize(
    "wrong", [pytest.param(name, marks=[] if name == "a local norm" else pytest.mark.soak) for name in WRONG]
)
def test_what_one_process_computes_for_itself_is_seen_in_the_curve(wrong, tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(PLANTED.format(planted=WRONG[wrong]))
    with Several(tmp_path, "mlp-digits", FSDP, "--steps", "8", precision="float64", script=script) as pair:
        assert [code for code, _, _ in pair.ends()] == [0, 0]
    _, records = alone(FSDP, 8)
    assert distance(records, read_lines(pair.run.steps)) > 1e-6


OVERFLOW = """
whole = sharding.ShardedModel.take_gradients
def take_gradients(self):
    whole(self)
    self.steps = getattr(self, "steps", 0) + 1
    if self.steps == 3 and processes.index() == 1:
        self.params[0].grad.view(-1)[0] = float("inf")
sharding.ShardedModel.take_gradients = take_gradients
"""
"""A gradient that is infinite in one shard alone."""


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_an_overflow_in_one_shard_skips_the_step_everywhere(shared, tmp_path):
    script = tmp_path / "overflow.py"
    lost = "" if shared else "sharding.ShardedModel.share_overflow = lambda self, scaler, optimizer: None\n"
    script.write_text(PLANTED.format(planted=OVERFLOW + lost))
    words = ("--steps", "8", "--trace-state")
    with Several(tmp_path, "mlp-digits", FSDP, *words, precision="float16", script=script) as pair:
        codes = pair.ends()
    rows = read_lines(pair.run.steps)
    skipped = [row["step"] for row in rows if row["skipped"]]
    if shared:
        assert [code for code, _, _ in codes] == [0, 0], codes
        assert skipped == [3]
        assert rows[3]["loss_scale"] == rows[2]["loss_scale"] / 2
    else:  # process 0 applied what process 1 skipped, and the moments are of two steps
        assert skipped != [3] or [code for code, _, _ in codes] != [0, 0], codes


SWAPPED = """
runs = shards.runs
def elsewhere(piece):
    for at, run in runs(piece):
        yield (0 if os.environ["RANK"] == "1" and piece.leaf and "weight" in piece.leaf else at), run
shards.runs = elsewhere
"""
"""Process 1 writes its shards over those of process 0."""


@pytest.mark.soak
def test_shards_at_another_place_are_refused_when_they_are_restored(tmp_path):
    script = tmp_path / "swapped.py"
    script.write_text(PLANTED.format(planted=SWAPPED))
    with Several(tmp_path, "mlp-digits", FSDP, "--steps", "8", precision="float64", script=script) as pair:
        pair.ends()
    spec = replace(load("mlp-digits", "float64", FSDP), mesh=MeshSpec())
    with pytest.raises(CheckpointError, match="is not what was sealed"):
        torch_side.build(spec, pair.run.path).restore(8)
    with Several(tmp_path, "mlp-digits", FSDP, "--steps", "16", precision="float64") as pair:
        for code, _, err in pair.ends():
            assert code == 2, err
            assert "is not what was sealed" in err


def test_a_mesh_of_another_size_than_there_are_processes_is_refused_in_both(tmp_path):
    with Several(tmp_path, "mlp-digits", [*SMALL, "mesh.data=4"]) as pair:
        codes = pair.ends()
    for code, _, err in codes:
        assert code == 2, codes
        assert "mesh.data = 4 x mesh.fsdp = 1 x mesh.model = 1 are 4 devices, and 2 processes were started" in err
    assert not Path(pair.run.path).exists()


def test_the_seal_of_several_processes_names_as_many_places_as_that_of_one(home):
    path, _, _ = home
    seal = read_seal(path / "run" / "checkpoints" / "24")
    assert (
        json.loads((path / "run" / "checkpoints" / "24" / "meta.json").read_text())["scalars"]["counters.step"] == 24
    )
    assert {leaf for leaf in seal.leaves if leaf.startswith(("model.", "optimizer."))} - {"optimizer.step"} == set(
        seal.places
    )


SILENT = "import parity.runs.peers as peers; peers.BEAT_SECONDS, peers.SILENCE_SECONDS = 0.5, 4.0"


@pytest.mark.soak
@pytest.mark.parametrize("stopped", [0, 1])
def test_when_one_is_stopped_the_other_ends_and_says_which(stopped, tmp_path):
    script = tmp_path / "silent.py"
    script.write_text(PLANTED.format(planted=SILENT))
    with Several(tmp_path, "mlp-digits", ENDLESS, script=script) as pair:
        pair.wait_for_steps()
        pair[stopped].send_signal(signal.SIGSTOP)
        code, _, err = pair.end(1 - stopped, seconds=60)
    assert code == 3, err
    silent = (
        rf"parity: error: process {stopped} of 2 \({pair[stopped].pid} on .+\) has given no sign of life for 4 s:"
    )
    assert re.match(silent, err), err
    assert len(err.splitlines()) == 1, err
