"""A run of several processes: each sends what it wrote, the first the seal; one process resumes it elsewhere."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from parity.cli import main
from parity.storage import read_lines
from tests.remote.server import Request, Server
from tests.remote.test_runs import URL, all_whole, rows
from tests.support.several import Several

pytestmark = pytest.mark.processes

BLOCKS = ["model.hidden=[1024,1024]", "batch=16", "execution.chunk=2", "save.every=8", "validate_every=8"]
BLOCKS += [f"save.remote={URL}"]
"""Two blocks, which two processes write."""

LARGE = [*BLOCKS, "mesh.fsdp=2", "steps=8"]
ENDLESS = [*BLOCKS, "mesh.fsdp=2", "steps=1000000"]
WITHIN = 1e-12
"""Relative, in float64: the bar of the suite for equal semantics."""


def words(side: str, directory: Path, steps: int, *more: str) -> list[str]:
    """Return the command of the same run in one process."""
    settings = [word for one in [*BLOCKS, *more] for word in ("--set", one)]
    given = ["train", "--side", side, "--spec", "mlp-digits", "--precision", "float64", "--dir", str(directory)]
    return [*given, *settings, "--steps", str(steps)]


def losses(directory: Path) -> list[float]:
    """Return the loss of each step; of a step that was taken again, the last."""
    return list({row["step"]: float(row["loss"]) for row in read_lines(directory / "steps.jsonl")}.values())


def is_sent(server: Server, step: int) -> bool:
    return any(f"/checkpoints/{step}/" in key and key.endswith("seal.json") for key in server.objects)


class WithKeys(Several):
    """Each process with an access key of its own, by which the store tells who sent what."""

    def own(self, index: int) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": f"AKIAPROCESS{index}"}


class Apart(WithKeys):
    """The second process does not reach the store."""

    def own(self, index: int) -> dict[str, str]:
        return {**super().own(index), **({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"} if index else {})}


def puts(server: Server) -> dict[str, set[str]]:
    """Return the files of checkpoints that were sent, or their pieces, by who sent them."""
    found: dict[str, set[str]] = {}
    for request in server.requests:
        if request.method == "PUT" and ("/files/" in request.key or "/pieces/" in request.key):
            found.setdefault(request.user, set()).add(request.key)
    return found


def assert_each_sent_its_own(server: Server, side: str, step: int) -> None:
    """Each process sent what it wrote and nothing of the other's; the seal of `step` came when all was there."""
    sent = puts(server)
    assert sorted(sent) == ["AKIAPROCESS0", "AKIAPROCESS1"]
    assert not sent["AKIAPROCESS0"] & sent["AKIAPROCESS1"], "nothing is sent twice"
    if side == "jax":
        assert all(any(f"ocdbt.process_{index}/" in key for key in sent[f"AKIAPROCESS{index}"]) for index in (0, 1))
    else:
        assert any("/pieces/state.pt/" in key for key in sent["AKIAPROCESS1"])
    put = [
        request for request in server.requests if request.method == "PUT" and f"/checkpoints/{step}/" in request.key
    ]
    assert len(put) == len({request.key for request in put}), "each object of a checkpoint is sent once"
    seals = [request for request in put if request.key.endswith("seal.json")]
    assert [request.user for request in seals] == ["AKIAPROCESS0"]
    last = max(n for n, request in enumerate(put) if request.key in set().union(*sent.values()))
    assert put.index(seals[0]) > last, "the seal is sent when all is there"


@pytest.mark.soak
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_each_process_sends_what_it_wrote(side: str, server: Server, tmp_path: Path, capsys: Any) -> None:
    with WithKeys(tmp_path, "mlp-digits", LARGE, precision="float32", side=side) as several:
        ends = several.ends()
    assert [(code, err) for code, _, err in ends] == [(0, ""), (0, "")], ends
    assert_each_sent_its_own(server, side, 8)
    assert all_whole()
    capsys.readouterr()
    assert main(["verify", URL]) == 0


@pytest.mark.soak
@pytest.mark.parametrize("kind", [Apart, WithKeys])
def test_a_process_that_does_not_reach_the_store_is_said_and_one_goes_on_from_what_was_sent(
    kind: type[WithKeys], server: Server, tmp_path: Path, capsys: Any
) -> None:
    with kind(tmp_path, "mlp-digits", LARGE, precision="float32") as several:
        ends = several.ends()
    assert [(code, err) for code, _, err in ends] == [(0, ""), (0, "")], ends
    assert ("process 1 of 2 could not send its share of a copy" in ends[0][1]) is (kind is Apart)
    assert len(puts(server)) == (1 if kind is Apart else 2)
    assert rows() == [8]
    assert all_whole()
    capsys.readouterr()
    given = ["--spec", str(tmp_path / "spec.toml"), "--dir", str(tmp_path / "elsewhere"), "--set", "mesh.fsdp=1"]
    assert main(["train", "--side", "torch", *given, "--steps", "12"]) == 0
    assert "fetched step 8" in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.parametrize("side", ["torch", "jax"])
@pytest.mark.parametrize("killed", [1, 0])
def test_a_rank_that_is_killed_while_it_sends_leaves_no_half_checkpoint(
    side: str, killed: int, server: Server, tmp_path: Path
) -> None:
    asked = threading.Event()

    def hold(request: Request) -> str | None:
        if request.user == f"AKIAPROCESS{killed}" and request.method == "PUT" and "/checkpoints/8/" in request.key:
            asked.set()
            return "silent"
        return None

    server.trouble = hold
    with WithKeys(tmp_path, "mlp-digits", LARGE, precision="float32", side=side) as several:
        several.wait_for(asked.is_set)
        several[killed].kill()
        assert several.end(1 - killed)[0] != 0
    server.trouble = lambda request: None
    assert rows() == []
    assert all_whole()


@pytest.mark.parametrize("side", ["torch", pytest.param("jax", marks=pytest.mark.soak)])
@pytest.mark.parametrize("killed", [1, pytest.param(0, marks=pytest.mark.soak)])
def test_a_rank_is_killed_and_one_process_goes_on_from_what_each_had_sent(
    side: str, killed: int, server: Server, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WithKeys(tmp_path, "mlp-digits", ENDLESS, precision="float64", side=side) as several:
        several.wait_for(lambda: is_sent(server, 16))
        several[killed].kill()
        code, _, err = several.end(1 - killed)
        assert code != 0
        assert f"process {killed} of 2" in err
    assert_each_sent_its_own(server, side, 8)
    assert all_whole()
    held = rows()
    now = server.memory.now
    monkeypatch.setattr(server.memory, "now", lambda: now() + 100)  # the lease of what was killed has run out
    capsys.readouterr()
    assert main(["verify", URL]) == 0
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
