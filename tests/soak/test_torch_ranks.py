"""The product of meshes, models and precisions on the PyTorch side, and kills of ranks under torchrun.

`PARITY_RANK_KILLS` is the number of kills; about 15 seconds each on two busy cores.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import torch_side
from parity.checkpoints import read_seal, verify
from parity.reference.planned import read_evidence
from parity.runs import RunDirectory, launch
from parity.spec import MESH_AXES, load, to_toml
from parity.state import in_schema_2
from parity.storage import read_lines
from tests.processes.test_torch_together import WITHIN, alone, distance
from tests.support.several import ROOT, Several, trained
from tests.support.small import SHRUNK, bits_of

pytestmark = pytest.mark.soak

KILLS = int(os.environ.get("PARITY_RANK_KILLS", "20"))
STEPS = 200
MESHES = ("data=2", "fsdp=2", "model=2", "data=4", "fsdp=4", "data=2 fsdp=2", "fsdp=2 model=2", "data=2 model=2")
MODELS = {**SHRUNK, "mlp-digits": ["model.hidden=[16,16]", "batch=16"], "cnn-digits": ["model.channels=[4,8]"]}
SPLIT = ("mlp-digits", "gpt-text")
"""Presets whose layers the PyTorch side splits along `model`."""


def overrides(preset, mesh):
    return [*MODELS[preset], "save.every=100", *(f"mesh.{axis}" for axis in mesh.split())]


def count(mesh):
    product = 1
    for axis in mesh.split():
        product *= int(axis.partition("=")[2])
    return product


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("preset", SHRUNK)
def test_a_mesh_trains_as_one_device_and_one_device_resumes_it(preset, mesh, tmp_path):
    if "model" in mesh and preset not in SPLIT:
        pytest.skip("refused: its layers are not split")
    given = overrides(preset, mesh)
    trained(tmp_path, preset, given, steps=STEPS, count=count(mesh), precision="float64")
    _, records = alone(given, STEPS, preset=preset)
    worst = distance(records, read_lines(RunDirectory(tmp_path / "run").steps))
    print(f"{preset} {mesh}: {worst:.2g} relative over {STEPS} steps")
    assert worst <= WITHIN


@pytest.mark.parametrize("after", ["data=1", *MESHES])
@pytest.mark.parametrize("before", ["data=1", *MESHES])
def test_a_state_crosses_between_meshes_bit_for_bit(before, after, tmp_path):
    if before == after:
        pytest.skip("the same mesh")
    given = overrides("mlp-digits", before)
    trained(tmp_path, "mlp-digits", given, steps=10, count=count(before), precision="float64")
    sealed = read_seal(tmp_path / "run" / "checkpoints" / "10").leaves
    words = [f"mesh.{axis}=1" for axis in MESH_AXES] + [f"mesh.{axis}" for axis in after.split()]
    out = trained(
        tmp_path, "mlp-digits", [*given, *words], "--trace-state", steps=20, count=count(after), precision="float64"
    )
    assert "resumed from step 10 (latest)" in out
    (began,) = (
        row["leaves"] for row in read_lines(RunDirectory(tmp_path / "run").states) if row["event"] == "restored"
    )
    # states.jsonl has schema 1
    assert {leaf: in_schema_2(text) for leaf, text in began.items() if leaf != "config.spec"} == {
        leaf: text for leaf, text in sealed.items() if leaf != "config.spec"
    }
    _, records = alone(given, 20)
    assert distance(records, read_lines(RunDirectory(tmp_path / "run").steps)) <= WITHIN


def under_torchrun(home, mesh, steps, restarts):
    """Start a run of the tests' MLP under torchrun."""
    spec = replace(
        load("mlp-digits", "float64", [*overrides("mlp-digits", mesh), "save.every=5", "execution.chunk=1"])
    )
    file = home / "spec.toml"
    file.write_text(to_toml(replace(spec, steps=steps)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count(mesh))]
    command += ["--max-restarts", str(restarts), "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += ["-m", "parity", "train", "--side", "torch", "--spec", str(file), "--dir", str(home / "run")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home)


def ranks(agent):
    """Return the processes that torchrun has started and that train."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            words = (status.parent / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == agent.pid and b"\0train\0" in words:
            found.append(int(status.parent.name))
    return sorted(found)


def rank_0(processes):
    """Return which of the processes has rank 0: it listens for the others, decides, seals and writes the records."""
    (found,) = (pid for pid in processes if b"\0RANK=0\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes())
    return found


def runs(pid):
    """Return whether a process runs: one that has lost its parent may stay a zombie, which nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def quiet_records(home, mesh, steps):
    """Return step to the bits of its record, of a run that nothing stops."""
    quiet = home / "quiet"
    quiet.mkdir()
    plain = under_torchrun(quiet, mesh, steps, 0)
    out, _ = plain.communicate(timeout=600)
    assert plain.returncode == 0, out
    return {record.step: bits_of([record]) for record in read_evidence(quiet / "run").records}


def require_whole(run, expected):
    """Check that the records of all attempts are the expected ones, as what was repeated is the same too."""
    found = read_evidence(run.path).records
    assert {record.step for record in found} == set(expected)
    assert [record.step for record in found if bits_of([record]) != expected[record.step]] == []
    for saved in run.store.scan().whole:
        assert verify(run.checkpoints / str(saved.step)).whole


@pytest.mark.parametrize(
    ("mesh", "whom"), [("fsdp=2", "any"), ("data=2", "any"), ("fsdp=2 model=2", "any"), ("fsdp=2", "rank 0")]
)
def test_killed_ranks_are_started_anew_and_nothing_is_lost(mesh, whom, tmp_path):
    """Random ranks, at times all, or rank 0 alone, at random moments; the records are those of a quiet run."""
    steps = 20 * KILLS
    expected = quiet_records(tmp_path, mesh, steps)
    assert set(expected) == set(range(1, steps + 1))
    dice, killed = random.Random(1), 0
    with under_torchrun(tmp_path, mesh, steps, KILLS) as agent:
        run = RunDirectory(tmp_path / "run")
        until = time.monotonic() + 60 * KILLS
        while agent.poll() is None and killed < KILLS and time.monotonic() < until:
            before = len(read_lines(run.steps)) if run.exists else 0
            target = before + dice.randint(1, 15)
            while agent.poll() is None and (len(read_lines(run.steps)) if run.exists else 0) < target:
                time.sleep(0.01)
                assert time.monotonic() < until
            victims = ranks(agent)
            if len(victims) == count(mesh):
                chosen = victims if dice.random() < 0.3 else [dice.choice(victims)]
                for victim in [rank_0(victims)] if whom == "rank 0" else chosen:
                    os.kill(victim, signal.SIGKILL)
                killed += 1
        out, _ = agent.communicate(timeout=600)
    assert agent.returncode == 0, out
    print(f"{mesh}: {killed} kills, {len(read_lines(run.attempts))} attempts")
    assert killed > 0
    require_whole(run, expected)


def test_ranks_whose_torchrun_is_killed_train_to_the_end_and_no_second_run_writes_meanwhile(tmp_path):
    """They lose who would start them anew, and nothing else; the lock of rank 0 refuses another start by its name."""
    steps = 200
    expected = quiet_records(tmp_path, "fsdp=2", steps)
    run, until = RunDirectory(tmp_path / "run"), time.monotonic() + 600
    left = []
    try:
        with under_torchrun(tmp_path, "fsdp=2", steps, 3) as agent:
            while not run.exists or len(read_lines(run.steps)) < 12:
                assert agent.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            left = ranks(agent)
            assert len(left) == 2
            owner = rank_0(left)
            agent.kill()
            for pid in left:  # so that they have not ended before the other start is there
                os.kill(pid, signal.SIGSTOP)
            second = under_torchrun(tmp_path, "fsdp=2", steps, 0)
            out, _ = second.communicate(timeout=100)
            for pid in left:
                os.kill(pid, signal.SIGCONT)
            assert second.returncode != 0, out
            assert re.search(rf"has a writer already: .*\b{owner}\b", out), out
            while any(map(runs, left)):
                assert time.monotonic() < until, "they hang"
                time.sleep(0.2)
    finally:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    assert len(read_lines(run.attempts)) == 1
    require_whole(run, expected)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("mesh", ["data=2", "fsdp=2", "model=2"])
def test_in_every_precision_the_same_steps_are_skipped(mesh, precision, tmp_path):
    given = overrides("mlp-digits", mesh) + (["scaler.overflow_steps=[3,4,9]"] if precision == "float16" else [])
    trained(tmp_path, "mlp-digits", given, steps=20, precision=precision)
    _, records = alone(given, 20, precision)
    rows = read_lines(RunDirectory(tmp_path / "run").steps)
    assert distance(records, rows) < (1e-4 if precision == "float32" else 0.1)
    assert [row["step"] for row in rows if row["skipped"]] == ([3, 4, 9] if precision == "float16" else [])


@pytest.mark.parametrize("mesh", ["data=2", "fsdp=2"])
def test_compiled_steps_of_several_processes_are_those_of_one_device(mesh, tmp_path):
    """PyTorch warns on standard error, and compiling twice took four minutes on two busy cores."""
    given = [*overrides("mlp-digits", mesh), "execution.torch=compile"]
    with Several(tmp_path, "mlp-digits", given, "--steps", "10", precision="float64") as pair:
        ends = pair.ends(900)
    assert [code for code, _, _ in ends] == [0, 0], ends
    _, records = alone([one for one in given if "compile" not in one], 10)
    assert distance(records, read_lines(pair.run.steps)) <= WITHIN


MEMORY = """
import json, os, sys
from pathlib import Path
from parity.contract import processes_of
from parity.runs import join
from parity.spec import from_toml, identity_of
import torch_side
from tests.support.peak import Peak

spec = from_toml(Path(sys.argv[1]).read_text())
home = Path(sys.argv[2])
with join(processes_of(torch_side), dict, identity_of(spec), spec, 60) as together:
    trainer = torch_side.build(spec, home)
    for _ in trainer.steps(2): pass
    mine = sum(part.local.nbytes for part in trainer.split.parts.values()) * 3
    with Peak() as save:
        trainer.save(None); trainer.wait()
    with Peak() as restore:
        trainer.restore(2)
    (home / f"memory-{trainer.placement.mesh.at('fsdp')}.json").write_text(json.dumps(
        {"shard": mine, "save": save.above(mine), "restore": restore.above(mine)}))
"""


def test_a_process_needs_at_most_two_of_its_own_shards_to_save_and_to_restore(tmp_path):
    """Four processes, 17 million parameters with the state of AdamW; anonymous memory above training, sampled."""
    (script := tmp_path / "memory.py").write_text(MEMORY)
    given = ["model.hidden=[4096,4096]", "mesh.fsdp=4", "batch=16", "steps=2"]
    file = tmp_path / "spec.toml"
    file.write_text(to_toml(load("mlp-digits", "float32", given)))
    (tmp_path / "run").mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    code = launch([sys.executable, str(script), str(file), str(tmp_path / "run")], 4, env)
    assert code == 0
    found = [json.loads(one.read_text()) for one in sorted((tmp_path / "run").glob("memory-*.json"))]
    assert len(found) == 4
    for row in found:
        print(row)
    assert max(row["save"] for row in found) <= 2
    assert max(row["restore"] for row in found) <= 2


HELD = """
import json, math, sys
from pathlib import Path
from parity.contract import processes_of
from parity.runs import join
from parity.spec import from_toml, identity_of
import torch_side

spec = from_toml(Path(sys.argv[1]).read_text())
with join(processes_of(torch_side), dict, identity_of(spec), spec, 60) as together:
    trainer = torch_side.build(spec)
    if together.first:
        held = {name: part.local.nbytes for name, part in trainer.split.parts.items()}
        Path(sys.argv[2]).write_text(json.dumps(held))
"""


@pytest.mark.parametrize("preset", ["mlp-digits", "gpt-text"])
@pytest.mark.parametrize("mesh", ["fsdp=2", "model=2", "fsdp=2 model=2", "data=2 model=2"])
def test_what_is_explained_is_what_a_process_holds(mesh, preset, tmp_path):
    (script := tmp_path / "held.py").write_text(HELD)
    spec = load(preset, None, overrides(preset, mesh))
    file, out = tmp_path / "spec.toml", tmp_path / "held.json"
    file.write_text(to_toml(spec))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    assert launch([sys.executable, str(script), str(file), str(out)], count(mesh), env) == 0
    leaves = {one.leaf: one.device_bytes for one in torch_side.explain_sharding(spec).leaves}
    held = json.loads(out.read_text())
    assert held == {name: leaves[f"model.params.{name}"] for name in held}
    assert len(held) > 3
