"""A state that is split over several JAX processes: the bits, the checkpoints and the seals of one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.checkpoints import read_seal, verify
from parity.contract import StepRecord, read_records, splice
from parity.reference.planned import read_evidence
from parity.runs import RunDirectory
from parity.spec import load, to_toml
from tests.support.several import ROOT, SECONDS, Several
from tests.support.small import bits_of

pytestmark = pytest.mark.processes

MESH = ["mesh.fsdp=2", "mesh.model=2", "save.every=4", "validate_every=4", "execution.chunk=2"]
SMALL = {
    "mlp-digits": [*MESH, "model.hidden=[16, 8]"],
    "cnn-digits": [*MESH, "model.channels=[4, 8]"],
    "gpt-text": [*MESH, "model.width=16", "model.layers=1", "model.heads=2", "batch=16"],
}


def train(home, name, count, steps, *words):
    """Train a run to a step in so many processes; return its directory."""
    if count > 1:
        given = ("--steps", str(steps), *words)
        with Several(home, name, SMALL[name], *given, count=count, side="jax") as several:
            ends = several.ends()
        assert [code for code, _, _ in ends] == [0] * count, ends
        return several.run
    file, run = home / "spec.toml", home / "run"
    file.write_text(to_toml(load(name, None, SMALL[name])))
    command = [sys.executable, "-m", "parity", "train", "--side", "jax", "--spec", str(file), "--dir", str(run)]
    command += ["--steps", str(steps), *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=SECONDS)
    return RunDirectory(run)


def curve_of(run):
    return bits_of(splice(read_records(run.steps, StepRecord)).values())


def seals_of(run):
    return {saved.step: read_seal(run.checkpoints / str(saved.step)) for saved in run.store.scan().whole}


COUNTS = (2, pytest.param(4, marks=pytest.mark.soak))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "name", ["mlp-digits", *(pytest.param(name, marks=pytest.mark.soak) for name in ("cnn-digits", "gpt-text"))]
)
def test_several_processes_have_the_bits_and_the_seals_of_one(name, count, tmp_path):
    homes = {n: tmp_path / str(n) for n in (1, count)}
    for home in homes.values():
        home.mkdir()
    runs = {n: train(home, name, n, 8, "--trace-state") for n, home in homes.items()}
    assert curve_of(runs[1]) == curve_of(runs[count])
    ours, theirs = seals_of(runs[1]), seals_of(runs[count])
    assert list(ours) == list(theirs) == [4, 8]
    for step in ours:
        assert list(ours[step].leaves.items()) == list(theirs[step].leaves.items()), "and in the same order"
        assert verify(runs[count].checkpoints / str(step)).whole
    files = {Path(file).name for file in theirs[8].files}
    assert not any(file.startswith("digests.process") for file in files), "nothing of the gathering is left behind"


@pytest.mark.soak  # tests/parity/test_topology.py goes on in other numbers of processes in the gate
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", SMALL)
def test_each_goes_on_in_the_number_of_processes_of_the_other(name, count, tmp_path):
    homes = {n: tmp_path / str(n) for n in (1, count)}
    for n, home in homes.items():
        home.mkdir()
        train(home, name, n, 8, "--trace-state")
    after = {n: train(homes[n], name, 1 if n > 1 else count, 12, "--trace-state") for n in homes}
    assert curve_of(after[1]) == curve_of(after[count])
    for run in after.values():
        left = read_evidence(run.path)
        assert left.resumed_from == [None, 8]
        restored, saved = left.find("restored", 8).leaves, left.find("saved", 8, before=1).leaves
        assert {leaf for leaf in saved if restored[leaf] != saved[leaf]} <= {"config.spec"}, "it names the last step"


ONE_SHARD_IS_ANOTHER = """
import os, sys
import jax, numpy as np
import jax_side.checkpoint as checkpoint
from parity.cli import main
read = checkpoint.read_items
def damaged(path, abstract, *, sealed):
    found = read(path, abstract, sealed=sealed)
    if os.environ["JAX_PROCESS_ID"] == "1":
        def change(path, value):
            if "{leaf}" not in jax.tree_util.keystr(path) or value.ndim != 2:
                return value
            parts = [shard.data + 1 for shard in value.addressable_shards]
            return jax.make_array_from_single_device_arrays(value.shape, value.sharding, parts)
        found["params"] = jax.tree_util.tree_map_with_path(change, found["params"])
    return found
checkpoint.read_items = damaged
sys.exit(main(sys.argv[1:]))
"""
"""`parity`, with a reader that gives process 1 other values in its shards of a kernel."""

READ = [
    ("[0]", "what was loaded of step 4 is not what was sealed", "model.params.layers.0.weight"),
    pytest.param("[2]", "devices that hold the same part of it differ", "layers.2.weight", marks=pytest.mark.soak),
]
"""Layer whose kernel is another one in process 1: one of which it alone has parts, and one that process 0 has too."""


@pytest.mark.parametrize(("layer", "problem", "leaf"), READ)
def test_a_shard_that_one_process_reads_as_something_else_is_refused_by_all(layer, problem, leaf, tmp_path):
    train(tmp_path, "mlp-digits", 2, 4)
    script = tmp_path / "damaged.py"
    script.write_text(ONE_SHARD_IS_ANOTHER.replace("{leaf}", layer))
    words = ("--steps", "8", "--resume", "latest")
    with Several(tmp_path, "mlp-digits", SMALL["mlp-digits"], *words, count=2, side="jax", script=script) as several:
        ends = several.ends()
    assert all(code == 2 for code, _, _ in ends), ends
    for _, _, err in ends:
        assert problem in err
        assert leaf in err
