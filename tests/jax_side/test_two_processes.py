"""Two JAX processes save one sealed checkpoint together, restore it together, and it is restored in one process."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import jax_side
from parity.checkpoints import read_seal, verify
from parity.runs import RunDirectory
from parity.spec import load
from tests.jax_side.two_processes import OVERRIDES
from tests.support.small import state_of

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("two_processes.py")
ROOT = SCRIPT.parents[2]


def start(run: Path, plant: str) -> list[subprocess.Popen[str]]:
    """Start both processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env}
    return [subprocess.Popen([sys.executable, str(SCRIPT), str(i), port, str(run), plant], **pipes) for i in range(2)]


def stop(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def together(run: Path) -> list[dict]:
    """Run both processes to their end; return what each said."""
    processes = start(run, "")
    out = []
    try:
        for process in processes:
            text, log = process.communicate(timeout=120)
            lines = [line for line in text.splitlines() if line.startswith("{")]
            assert lines, log[-2000:]
            out.append(json.loads(lines[-1]))
    finally:
        stop(processes)
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("together") / "run"
    return path, together(path)


def test_both_save_and_restore_the_same_state(run):
    path, (first, second) = run
    assert [s.step for s in RunDirectory(path).store.scan().whole] == [2, 4]
    assert first["restored_step"] == second["restored_step"] == 4
    assert first["saved"] == first["restored"] == second["restored"] == second["saved"]
    assert read_seal(path / "checkpoints" / "4").leaves == first["saved"]


def test_each_process_digests_the_files_it_wrote_and_the_first_gathers_them(run):
    path, (first, second) = run
    assert second["digested"], "process 1 wrote shards of its own"
    assert all(name.startswith("ocdbt.process_1/") for name in second["digested"])
    assert not any("ocdbt.process_1/" in name for name in first["digested"]), "and nobody digests them again"
    files = read_seal(path / "checkpoints" / "4").files
    assert {name.split("/", 1)[1] for name in files if "ocdbt.process_1/" in name} <= set(second["digested"])
    assert not any("digests.process" in name for name in files)
    assert verify(path / "checkpoints" / "4").whole


def test_it_is_restored_in_one_process(run):
    path, (first, _) = run
    trainer = jax_side.build(load("mlp-digits", None, [*OVERRIDES, "mesh.data=1"]), path)
    assert trainer.restore("latest") == 4
    restored = state_of(trainer)
    trainer.close()
    spec = "config.spec"  # names the mesh
    assert {k: v for k, v in restored.items() if k != spec} == {k: v for k, v in first["saved"].items() if k != spec}


def test_a_flipped_bit_in_a_shard_of_the_second_process_is_found(run):
    path, _ = run
    checkpoint = path / "checkpoints" / "2"
    shard = max(checkpoint.glob("params/ocdbt.process_1/d/*"), key=lambda file: file.stat().st_size)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert [fault.file for fault in verify(checkpoint).faults] == [str(shard.relative_to(checkpoint))]
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)


def test_a_process_that_leaves_no_digests_fails_the_save(tmp_path):
    """Planted: process 0 says which process is at fault, and the checkpoint never gets its name.

    Both are stopped then: Orbax keeps them in a barrier, which a job's own coordinator ends when it times out.
    """
    processes = start(tmp_path / "run", "mute")
    killer = threading.Timer(120, stop, (processes,))
    killer.start()
    try:
        said = next((line for line in processes[0].stderr if "process 1 left no digests of params" in line), None)
    finally:
        killer.cancel()
        stop(processes)
    assert said is not None
    assert RunDirectory(tmp_path / "run").store.scan().whole == []
