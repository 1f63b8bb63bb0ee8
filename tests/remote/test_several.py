"""A run of several processes: process 0 copies each checkpoint, with the shards of all; one process resumes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parity.cli import main
from parity.storage import read_lines
from tests.remote.server import Server
from tests.remote.test_runs import URL, all_whole, rows
from tests.support.several import Several

pytestmark = pytest.mark.processes

SMALL = ["model.hidden=[16,8]", "execution.chunk=2", "save.every=8", "validate_every=8", f"save.remote={URL}"]
ENDLESS = [*SMALL, "mesh.data=2", "steps=1000000"]
WITHIN = 1e-12
"""Relative, in float64: the bar of the suite for equal semantics."""


def words(side: str, directory: Path, steps: int, *more: str) -> list[str]:
    """Return the command of the same run in one process."""
    settings = [word for one in [*SMALL, *more] for word in ("--set", one)]
    given = ["train", "--side", side, "--spec", "mlp-digits", "--precision", "float64", "--dir", str(directory)]
    return [*given, *settings, "--steps", str(steps)]


def losses(directory: Path) -> list[float]:
    """Return the loss of each step; of a step that was taken again, the last."""
    return list({row["step"]: float(row["loss"]) for row in read_lines(directory / "steps.jsonl")}.values())


def is_sent(server: Server, step: int) -> bool:
    return any(f"/checkpoints/{step}/" in key and key.endswith("seal.json") for key in server.objects)


@pytest.mark.parametrize("side", ["torch", pytest.param("jax", marks=pytest.mark.soak)])
@pytest.mark.parametrize("killed", [1, pytest.param(0, marks=pytest.mark.soak)])
def test_a_rank_is_killed_and_one_process_goes_on_from_what_process_0_copied(
    side: str, killed: int, server: Server, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Several(tmp_path, "mlp-digits", ENDLESS, precision="float64", side=side) as several:
        several.wait_for(lambda: is_sent(server, 16))
        several[killed].kill()
        code, _, err = several.end(1 - killed)
        assert code != 0
        assert f"process {killed} of 2" in err
    puts = [request.key for request in server.requests if request.method == "PUT" and "/files/" in request.key]
    assert len(puts) == len(set(puts)) > 0, "each file of a checkpoint is sent once"
    held = rows()
    now = server.memory.now
    monkeypatch.setattr(server.memory, "now", lambda: now() + 100)  # the lease of what was killed has run out
    capsys.readouterr()
    assert main(words(side, tmp_path / "elsewhere", held[-1] + 8)) == 0
    out = capsys.readouterr().out
    assert f"fetched step {held[-1]} from {URL}" in out
    assert f"resumed from step {held[-1]} (latest)" in out
    assert main(words(side, tmp_path / "alone", held[-1] + 8, "save.remote=")) == 0
    ours, whole = losses(tmp_path / "elsewhere"), losses(tmp_path / "alone")
    assert len(ours) == len(whole) == held[-1] + 8
    assert max(abs(a - b) / abs(b) for a, b in zip(ours, whole, strict=True)) < WITHIN
    assert rows()[-1] == held[-1] + 8
    assert all_whole()
