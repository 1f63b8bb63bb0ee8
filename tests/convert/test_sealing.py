"""`parity seal`: checkpoints of other tools get a seal after the fact, and every later change is noticed."""

import errno
import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from flax import serialization
from safetensors.torch import save_file

import parity
from parity import storage
from parity.checkpoints import FILE, read_seal_beside, seal_beside, verify, verify_file
from parity.checkpoints import seal as seals
from parity.cli import main
from parity.convert import sealing
from parity.errors import CheckpointError, DamagedError, RunDirectoryError


def weights() -> dict[str, torch.Tensor]:
    return {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


def save_torch(home: Path) -> Path:
    torch.save({"model": weights(), "step": 3}, home / "x.pt")
    return home / "x.pt"


def save_safetensors(home: Path) -> Path:
    save_file(weights(), home / "model.safetensors")
    return home / "model.safetensors"


def save_index(home: Path) -> Path:
    for number, name in enumerate(weights()):
        save_file({name: weights()[name]}, home / f"{number}.safetensors")
    where = {name: f"{number}.safetensors" for number, name in enumerate(weights())}
    (home / "m.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return home / "m.safetensors.index.json"


def save_hugging_face(home: Path) -> Path:
    folder = home / "checkpoint-5"
    folder.mkdir()
    save_file(weights(), folder / "model.safetensors")
    torch.save({"state": {}, "param_groups": []}, folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text('{"global_step": 5}')
    (folder / "config.json").write_text("{}")
    return folder


def save_flax(home: Path) -> Path:
    (home / "checkpoint_3").write_bytes(serialization.to_bytes({"w": np.arange(4.0)}))
    return home / "checkpoint_3"


def save_dcp(home: Path) -> Path:
    dcp.save(weights(), checkpoint_id=str(home / "dcp"), no_dist=True)
    return home / "dcp"


def save_orbax(home: Path) -> Path:
    ocp.PyTreeCheckpointer().save(home / "ox", {"w": jnp.arange(4.0)})
    return home / "ox"


SAVERS = {
    "torch.save": save_torch,
    "safetensors": save_safetensors,
    "index of shards": save_index,
    "hugging-face": save_hugging_face,
    "flax-msgpack": save_flax,
    "dcp": save_dcp,
    "orbax": save_orbax,
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(params=SAVERS)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return SAVERS[request.param](tmp_path)


def checked(path: Path) -> Any:
    return verify(path) if path.is_dir() else verify_file(path)


def files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.is_file())
    return sorted({path.parent / name for name in read_seal_beside(path).files} | {seal_beside(path)})


@pytest.mark.takes_seconds
def test_every_flipped_byte_is_noticed(checkpoint: Path) -> None:
    """One bit of every byte of every file, the seal's own too."""
    assert main(["seal", str(checkpoint)]) == 0
    draw, count, silent = random.Random(3), 0, []
    for file in files_of(checkpoint):
        data = file.read_bytes()
        with file.open("r+b", buffering=0) as handle:
            for offset in range(len(data)):
                os.pwrite(handle.fileno(), bytes([data[offset] ^ 1 << draw.randrange(8)]), offset)
                if checked(checkpoint).whole:
                    silent.append((file.name, offset))
                os.pwrite(handle.fileno(), data[offset : offset + 1], offset)
                count += 1
    assert silent == []
    assert count > 100
    assert checked(checkpoint).whole, "every byte was put back"


def test_verify_says_whole_and_then_damaged(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(checkpoint)]) == 4
    assert main(["seal", str(checkpoint)]) == 0
    assert main(["verify", str(checkpoint)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("whole ")
    assert last.endswith("bytes, as sealed")
    file = files_of(checkpoint)[-1]
    file.write_bytes(file.read_bytes() + b"x")
    assert main(["verify", str(checkpoint)]) == 1


@pytest.mark.parametrize("change", ["a file is gone", "a file came"])
def test_a_directory_that_gained_or_lost_a_file_is_damaged(change: str, tmp_path: Path) -> None:
    checkpoint = save_hugging_face(tmp_path)
    assert main(["seal", str(checkpoint)]) == 0
    if change == "a file is gone":
        (checkpoint / "optimizer.pt").unlink()
    else:
        (checkpoint / "other.bin").write_bytes(b"")
    assert main(["verify", str(checkpoint)]) == 1


def test_a_seal_changes_nothing_else(checkpoint: Path) -> None:
    names = files_of(checkpoint) if checkpoint.is_dir() else [checkpoint]
    before = {file: file.read_bytes() for file in names}
    assert main(["seal", str(checkpoint)]) == 0
    assert main(["inspect", str(checkpoint)]) == 0
    assert {file: file.read_bytes() for file in names} == before


def test_a_conversion_refuses_what_is_not_as_it_was_sealed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = save_safetensors(tmp_path)
    assert main(["seal", str(checkpoint)]) == 0
    words = ["convert", str(checkpoint), "--to", "torch.save", "--only", "params"]
    assert main([*words[:2], str(tmp_path / "whole.pt"), *words[2:]]) == 0
    data = bytearray(checkpoint.read_bytes())
    data[-1] ^= 1
    checkpoint.write_bytes(data)
    assert main([*words[:2], str(tmp_path / "other.pt"), *words[2:]]) == 2
    assert "is damaged: model.safetensors does not hold the sealed bytes" in capsys.readouterr().err
    assert not (tmp_path / "other.pt").exists()


@pytest.mark.parametrize("kind", ["safetensors", "dcp"])
def test_a_restore_compares_with_the_seal(kind: str, tmp_path: Path) -> None:
    torch_side = pytest.importorskip("torch_side")
    checkpoint = SAVERS[kind](tmp_path)
    assert main(["seal", str(checkpoint)]) == 0
    like = {name: torch.zeros_like(one) for name, one in weights().items()}
    found = torch_side.restore(checkpoint, like=like)
    assert all(torch.equal(found.tree[name], one) for name, one in weights().items())
    file = files_of(checkpoint)[-1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedError, match="is not what was sealed"):
        torch_side.restore(checkpoint, like=like)


def test_a_second_seal_is_the_first_and_another_content_is_refused_unless_it_may_be_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = save_torch(tmp_path)
    assert main(["seal", str(checkpoint)]) == 0
    first = seal_beside(checkpoint).read_bytes()
    assert main(["seal", str(checkpoint)]) == 0
    assert seal_beside(checkpoint).read_bytes() == first
    torch.save({"model": weights(), "step": 4}, checkpoint)
    assert main(["seal", str(checkpoint)]) == 2
    assert "has a seal that does not fit" in capsys.readouterr().err
    assert seal_beside(checkpoint).read_bytes() == first
    assert main(["seal", str(checkpoint), "--replace"]) == 0
    assert verify_file(checkpoint).whole


def test_the_loop_goes_on_and_the_handle_returns_the_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = save_torch(tmp_path)
    begin = threading.Event()
    digest_files = storage.digest_files

    def slow(*given: Any) -> Any:
        assert begin.wait(10)
        return digest_files(*given)

    monkeypatch.setattr(sealing, "digest_files", slow)
    handle = parity.seal(checkpoint)
    assert not handle.done
    begin.set()
    assert list(handle.wait().files) == ["x.pt"]
    assert handle.done
    assert verify_file(checkpoint).whole


def test_a_file_that_is_overwritten_each_epoch_is_sealed_anew(tmp_path: Path) -> None:
    for step in range(3):
        torch.save({"model": weights(), "step": step}, tmp_path / "latest.pt")
        parity.seal(tmp_path / "latest.pt").wait()
        assert verify_file(tmp_path / "latest.pt").whole


@pytest.mark.parametrize("change", ["content", "gone"])
def test_what_changes_while_it_is_sealed_gets_no_seal(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = save_torch(tmp_path)
    digest_files = storage.digest_files

    def beside_a_writer(*given: Any) -> Any:
        found = digest_files(*given)
        checkpoint.write_bytes(checkpoint.read_bytes()) if change == "content" else checkpoint.unlink()
        return found

    monkeypatch.setattr(sealing, "digest_files", beside_a_writer)
    handle = parity.seal(checkpoint)
    with pytest.raises(CheckpointError, match="changed while it was sealed"):
        handle.wait()
    assert not seal_beside(checkpoint).exists()


def test_a_failure_that_nobody_waits_for_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = save_torch(tmp_path)

    def fail(*given: Any) -> Any:
        raise OSError(5, "Input/output error", str(checkpoint))

    monkeypatch.setattr(sealing, "digest_files", fail)
    handle = parity.seal(checkpoint)
    while not handle.done:
        pass
    assert "no seal for" in caplog.text
    assert "Input/output error" in caplog.text


def refused(tmp_path: Path, kind: str) -> Path:
    if kind == "a link":
        (tmp_path / "y.pt").symlink_to(save_torch(tmp_path))
        return tmp_path / "y.pt"
    if kind == "holds a link":
        folder = save_hugging_face(tmp_path)
        (folder / "extra").symlink_to("/dev/null")
        return folder
    if kind == "of a run":
        (tmp_path / "spec.toml").write_text("")
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "3").mkdir()
        return tmp_path / "checkpoints" / "3"
    if kind == "no checkpoint":
        (tmp_path / "a.txt").write_text("hello")
        return tmp_path / "a.txt"
    return tmp_path / "missing"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("a link", "is a link; seal what it leads to"),
        ("holds a link", "a link or no regular file"),
        ("of a run", "whose saves are sealed by the one that saves"),
        ("no checkpoint", "a file that starts with"),
        ("missing", "does not exist"),
    ],
)
def test_what_cannot_be_sealed_is_one_line(
    kind: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = refused(tmp_path, kind)
    before = sorted(tmp_path.rglob("*"))
    assert main(["seal", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(CheckpointError, match=said):
        parity.seal(path)


def test_a_seal_of_ours_is_not_replaced_by_one_without_leaves(tmp_path: Path) -> None:
    assert main(["convert", str(save_torch(tmp_path)), str(tmp_path / "d"), "--to", "dcp"]) == 0
    sealed = (tmp_path / "d" / FILE).read_bytes()
    assert main(["seal", str(tmp_path / "d")]) == 0
    with pytest.raises(CheckpointError, match="that seal is not replaced"):
        parity.seal(tmp_path / "d")
    assert (tmp_path / "d" / FILE).read_bytes() == sealed


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(RunDirectoryError, match="is a URL"):
        parity.seal("hf://bucket/x.pt")


def test_a_seal_that_names_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    checkpoint = save_torch(tmp_path)
    made = parity.seal(checkpoint).wait()
    (file,) = made.files.values()
    lying = seals.Seal(**{**vars(made), "files": {"x.pt": file, "sub/x.pt": file}})
    seal_beside(checkpoint).write_text(seals.seal_text(lying))
    assert main(["verify", str(checkpoint)]) == 1


def test_the_test_of_flips_would_see_a_seal_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a seal that leaves the hidden description of DCP out notices nothing there."""
    checkpoint = save_dcp(tmp_path)
    list_files = storage.list_files
    monkeypatch.setattr(
        sealing, "list_files", lambda root: {k: v for k, v in list_files(root).items() if k != ".metadata"}
    )
    parity.seal(checkpoint).wait()
    assert [fault.file for fault in verify(checkpoint).faults] == [".metadata"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_disk_that_cannot_be_written_is_named_with_the_seal_and_nothing_is_lost(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only file system refuses to remove even what is not there."""
    path = tmp_path / "w.pt"
    torch.save({"w": torch.ones(3)}, path)
    if kind == "directory":
        assert main(["convert", str(path), str(tmp_path / "o"), "--to", "orbax"]) == 0
        path = tmp_path / "o"
        (path / "seal.json").unlink()
    place = path / "seal.json" if kind == "directory" else tmp_path / ".w.pt.seal.json"
    before = sorted(tmp_path.rglob("*"))
    real = Path.open

    def refused(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    def opened(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if set(mode) & set("wxa+"):
            refused(self)
        return real(self, mode, *more, **named)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(Path, "unlink", refused)
    capsys.readouterr()
    assert main(["seal", str(path)]) == 3
    assert f"write {place}: Read-only file system" in " ".join(capsys.readouterr().err.split())
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_converted_into_a_sealed_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, other = save_torch(tmp_path), tmp_path / "other"
    assert main(["convert", str(source), str(other), "--to", "dcp"]) == 0
    (other / "deeper").mkdir()
    for target in (other / "y.pt", other / "deeper" / "y.pt"):
        assert main(["convert", str(source), str(target), "--to", "torch.save"]) == 2
        assert "which is sealed, and its seal would not fit any more" in capsys.readouterr().err
        assert not target.exists()
    assert main(["convert", str(source), str(tmp_path / "y.pt"), "--to", "torch.save"]) == 0
