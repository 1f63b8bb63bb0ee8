"""The commands take URLs: of a run, of one of its checkpoints, and of what another tool saved."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import parity
import torch_side
from parity.checkpoints.remote import HEAD
from parity.cli import main
from parity.convert import seal_checkpoint
from parity.errors import CheckpointError, DamagedError, StoreError
from parity.storage.stores import open_store, upload
from tests.remote.server import Request, Server
from tests.remote.test_runs import URL, quickly, words

__all__ = ["quickly"]


@pytest.fixture
def run(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(words(tmp_path / "run", 30)) == 0
    capsys.readouterr()
    return tmp_path / "run"


def test_the_commands_take_the_url_of_a_run_and_of_a_step(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", URL]) == 0
    assert capsys.readouterr().out.count("whole ") == 3
    assert main(["verify", f"{URL}/checkpoints/20"]) == 0
    assert capsys.readouterr().out.startswith(f"whole      {URL}/checkpoints/20: step 20")
    for which, step in (("best", 30), ("latest", 30), ("10", 10)):
        assert main(["path", URL, which]) == 0
        assert capsys.readouterr().out == f"{URL}/checkpoints/{step}\n"
    assert main(["inspect", URL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == URL
    assert main(["compare", f"{URL}/checkpoints/20", str(run / "checkpoints" / "20")]) == 0
    assert main(["compare", f"{URL}/checkpoints/20", str(run / "checkpoints" / "30")]) == 1
    assert main(["compare", URL, str(run)]) == 0
    assert main(["export", URL, "20", str(tmp_path / "out")]) == 0
    assert main(["verify", str(tmp_path / "out"), "--against", str(run / "checkpoints" / "20")]) == 0
    assert main(["export", URL, "best", str(tmp_path / "p.pt"), "--only", "params"]) == 0
    assert main(["convert", f"{URL}/checkpoints/30", str(tmp_path / "c.safetensors"), "--to", "safetensors"]) in (
        0,
        1,
    )


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["verify", f"{URL}/checkpoints/7"], 2, "no checkpoint of step 7"),
        (["path", URL, "7"], 2, "no checkpoint of step 7"),
        (["path", "s3://bucket/nothing", "best"], 2, "holds no run"),
        (["inspect", "s3://bucket/nothing"], 2, "nothing is there"),
        (["verify", "s3://bucket/nothing"], 2, "nothing is there"),
        (["verify", "s3://elsewhere/x"], 2, "there is no bucket 'elsewhere'"),
        (["export", "s3://bucket/nothing", "best", "out"], 2, "nothing is there"),
    ],
)
def test_what_is_not_there_is_one_line(
    given: list[str], code: int, said: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(run.parent)
    assert main(given) == code
    assert said in (err := capsys.readouterr().err)
    assert err.count("\n") == 1


def test_one_flipped_byte_in_every_object_is_noticed(
    run: Path, server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of each object of the newest checkpoint, and of the head, by `verify`, and by a fetch."""
    keys = [key for key in server.objects if "/checkpoints/30/" in key or key.endswith(HEAD)]
    assert len(keys) >= 8
    for number, key in enumerate(keys):
        data = server.objects[key]
        if not data:
            continue
        for at in {0, len(data) // 2, len(data) - 1}:
            changed = bytearray(data)
            changed[at] ^= 1
            server.memory.write("bucket", key, bytes(changed))
            assert main(["verify", URL]) in (1, 2), (key, at)
        assert main(["export", URL, "30", str(tmp_path / f"out{number}")]) == 2, key
        server.memory.write("bucket", key, data)
    assert main(["verify", URL]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("change", ["gone", "cut", "longer"])
def test_an_object_that_is_gone_or_of_another_size_is_damage(
    change: str, run: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    key = next(key for key in server.objects if key.endswith("30/1/files/state.pt"))
    if change == "gone":
        server.memory.delete("bucket", key)
    else:
        data = server.objects[key]
        server.memory.write("bucket", key, data[:-1] if change == "cut" else data + b"x")
    assert main(["verify", URL]) == 1
    assert "files/state.pt: " in capsys.readouterr().out
    assert main(["path", URL, "latest"]) == 2
    assert main(["path", URL, "latest", "--or-next"]) == 0
    assert capsys.readouterr().out.endswith("/20\n")


def test_checkpoints_of_other_tools_are_taken_with_and_without_a_seal(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = {"w": torch.arange(6.0), "b": torch.ones(2)}
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    save_file(weights, tmp_path / "m.safetensors")
    store = open_store("s3://bucket/others")

    def put() -> None:
        files = {str(one.relative_to(tmp_path)): one for one in tmp_path.rglob("*") if one.is_file()}
        upload(store, files, lambda: None)

    put()
    for name in ("m.safetensors", "checkpoint-5"):
        assert main(["verify", f"s3://bucket/others/{name}"]) == 4
        assert main(["inspect", f"s3://bucket/others/{name}"]) == 0
        assert main(["seal", str(tmp_path / name)]) == 0
    put()
    restored = torch_side.restore(
        "s3://bucket/others/m.safetensors", like={n: torch.zeros_like(w) for n, w in weights.items()}
    )
    assert all(torch.equal(restored.tree[name], weights[name]) for name in weights)
    for name, key in (("m.safetensors", "m.safetensors"), ("checkpoint-5", "checkpoint-5/model.safetensors")):
        assert main(["verify", f"s3://bucket/others/{name}"]) == 0
        data = bytearray(server.objects[f"others/{key}"])
        data[-1] ^= 1
        server.memory.write("bucket", f"others/{key}", bytes(data))
        assert main(["verify", f"s3://bucket/others/{name}"]) == 1
    with pytest.raises(DamagedError, match="is not what was sealed"):
        torch_side.restore("s3://bucket/others/m.safetensors", like=None)
    with pytest.raises(CheckpointError, match="nothing is there"):
        torch_side.restore("s3://bucket/others/none.pt", like=None)


def test_the_probe_says_what_is_kept(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["remote", "probe", "s3://bucket/x"]) == 0
    out = capsys.readouterr().out
    assert out.count("kept ") >= 9
    assert "everything that was tried is kept" in out
    server.memory.check = lambda held, asked: None  # type: ignore[method-assign]
    assert main(["remote", "probe", "s3://bucket/x"]) == 1
    assert "not promised there: one writer for each prefix" in capsys.readouterr().out
    assert main(["remote", "probe", "s3://elsewhere/x"]) == 2
    assert "there is no bucket 'elsewhere'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["m.safetensors", "checkpoint-5"])
def test_what_another_tool_saved_at_a_store_is_sealed_there(
    name: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    save_file({"w": torch.arange(6.0)}, tmp_path / "m.safetensors")
    save_file({"w": torch.arange(6.0)}, tmp_path / "checkpoint-5" / "model.safetensors")
    (tmp_path / "checkpoint-5" / "config.json").write_text("{}")
    store, url = open_store("s3://bucket/others"), f"s3://bucket/others/{name}"
    files = {str(one.relative_to(tmp_path)): one for one in tmp_path.rglob("*") if one.is_file()}
    upload(store, files, lambda: None)
    assert main(["seal", url]) == 0
    assert main(["seal", url]) == 0
    assert main(["verify", url]) == 0
    key = "others/m.safetensors" if name == "m.safetensors" else "others/checkpoint-5/model.safetensors"
    data = bytearray(server.objects[key])
    data[-1] ^= 1
    server.memory.write("bucket", key, bytes(data))
    assert main(["verify", url]) == 1
    assert main(["seal", url]) == 2
    assert "does not fit" in capsys.readouterr().err
    assert main(["seal", url, "--replace"]) == 0
    assert main(["verify", url]) == 0

    def beside_a_writer(path: Path, *, replace: bool) -> Any:
        server.memory.write("bucket", key, bytes(data) + b"x")
        return seal_checkpoint(path, replace=replace)

    monkeypatch.setattr("parity.convert.sealing_stored.seal_checkpoint", beside_a_writer)
    before = {key: value for key, value in server.objects.items() if key.endswith("seal.json")}
    assert main(["seal", url, "--replace"]) == 2
    assert "changed while it was sealed" in capsys.readouterr().err
    assert {key: value for key, value in server.objects.items() if key.endswith("seal.json")} == before


@pytest.mark.parametrize("name", ["m.safetensors", "checkpoint-5"])
def test_a_loop_seals_what_it_has_just_put_to_a_store(
    name: str, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_file({"w": torch.arange(6.0)}, tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()
    store, url = open_store("s3://bucket/others"), f"s3://bucket/others/{name}"
    key = name if name == "m.safetensors" else "checkpoint-5/model.safetensors"
    seal = "others/checkpoint-5/seal.json" if name == "checkpoint-5" else "others/.m.safetensors.seal.json"
    store.put("checkpoint-5/config.json", b"{}")
    store.put(key, data)
    made = parity.seal(url).wait()
    assert made.files[key.rpartition("/")[2]].size == len(data)
    assert main(["verify", url]) == 0
    first = server.objects[seal]
    store.put(key, data[:-4] + b"abcd")
    assert main(["verify", url]) == 1
    parity.seal(url).wait()
    assert (main(["verify", url]), server.objects[seal] != first) == (0, True)

    def written_meanwhile(request: Request) -> None:
        if request.method == "GET" and request.key == f"others/{key}" and not request.query:
            server.memory.write("bucket", f"others/{key}", data)

    server.trouble = written_meanwhile  # type: ignore[assignment]
    with pytest.raises(CheckpointError, match="changed while it was sealed"):
        parity.seal(url).wait()
    assert seal not in server.objects, "the old one was of what was there before"
    server.trouble = lambda request: "503" if request.method == "GET" and request.key.startswith("others/") else None
    with pytest.raises(StoreError, match="could not"):
        parity.seal(url)
    server.trouble = lambda request: None
    store.put("x.txt", b"no checkpoint")
    sealing = parity.seal("s3://bucket/others/x.txt")
    while not sealing.done:
        time.sleep(0.01)
    assert "no seal for s3://bucket/others/x.txt: s3://bucket/others/x.txt: a file that starts with" in caplog.text
    with pytest.raises(CheckpointError, match="nothing is there"):
        parity.seal("s3://bucket/others/absent.pt")


def test_a_seal_of_ours_at_a_store_is_not_replaced_by_one_without_leaves(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch_side.save(tmp_path / "tree", {"w": torch.ones(2)})
    store = open_store("s3://bucket/tree")
    upload(store, {one.name: one for one in (tmp_path / "tree").iterdir()}, lambda: None)
    before = server.objects
    assert main(["verify", "s3://bucket/tree"]) == 0
    with pytest.raises(CheckpointError, match="as it saved; it is not replaced"):
        parity.seal("s3://bucket/tree")
    assert main(["seal", "s3://bucket/tree"]) == 0, "it fits"
    assert torch.equal(torch_side.restore("s3://bucket/tree").tree["w"], torch.ones(2))
    assert server.objects == before
    capsys.readouterr()


def test_a_run_of_ours_is_not_sealed_anew(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seal", f"{URL}/checkpoints/20"]) == 2
    assert "whose checkpoints have seals" in capsys.readouterr().err


def test_a_run_is_named_by_its_url_and_has_a_directory_in_the_cache(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    given = [word for word in words(tmp_path, 10) if "save.remote" not in word]
    given.pop(next(at for at, word in enumerate(given) if word == "--set" and given[at + 1] == "--steps"))
    given[given.index("--dir") + 1] = URL
    assert main(given) == 0
    assert (tmp_path / "one" / "parity" / "runs" / "s3" / "bucket" / "runs" / "a" / "checkpoints" / "10").is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    given[given.index("--steps") + 1] = "20"
    assert main(given) == 0
    assert f"fetched step 10 from {URL}" in capsys.readouterr().out
    assert main(["verify", URL]) == 0
