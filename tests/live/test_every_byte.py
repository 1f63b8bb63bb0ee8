"""Every byte of a file counts: parts that stand one after the other, what stands behind them, words beside arrays."""

import gzip
import io
import marshal
import pickle
import sqlite3
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import save
from torch import nn

import parity
from parity.capture import differing
from parity.checks.resume.left_files import read_files

MUCH = np.zeros(700_000)
"""More bytes than a stream of pickles has that is taken apart."""


def saved(value: int) -> bytes:
    """Return what `torch.save` writes."""
    file = io.BytesIO()
    torch.save({"a": torch.full((3,), value)}, file)
    return file.getvalue()


def dumped(value: int) -> bytes:
    """Return what `joblib.dump` writes."""
    file = io.BytesIO()
    joblib.dump({"a": np.full(3, value)}, file)
    return file.getvalue()


def arrays(value: int) -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.full(3, value))
    return file.getvalue()


def tar(value: int, *, link: bool = False) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("a")
        if link:
            entry.type, entry.linkname = tarfile.SYMTYPE, f"step{value}"
        else:
            entry.size = 1
        archive.addfile(entry, io.BytesIO(b"%d" % value))
    return file.getvalue()


def commented(value: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a"), b"1")
        archive.comment = b"best=%d" % value
    return file.getvalue()


def twice(value: int, last: int = 5) -> bytes:
    """Return an archive with two members of one name, of which readers give the last."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(zipfile.ZipInfo("a"), b"%d" % value)
        archive.writestr(zipfile.ZipInfo("a"), b"%d" % last)
    return file.getvalue()


def table(value: int, rows: int = 1, words: str = "") -> bytes:
    with sqlite3.connect(":memory:") as opened:
        opened.execute("CREATE TABLE t(a)")
        opened.executemany("INSERT INTO t VALUES(?)", [(0,)] * (rows - 1) + [(0 if words else value,)])
        if words:
            opened.execute(f"PRAGMA {words} = {value + 1}")
        opened.commit()
        return opened.serialize()


FILES: dict[str, Callable[[int], bytes]] = {
    "the first of two saves": lambda v: saved(v) + saved(5),
    "the last of two saves": lambda v: saved(5) + saved(v),
    "behind a save": lambda v: saved(5) + b"step %d" % v,
    "before archives": lambda v: arrays(v) + arrays(5),
    "between archives": lambda v: arrays(5) + b"PK step %d" % v + arrays(5),
    "the comment of an archive": commented,
    "the second pickle": lambda v: pickle.dumps([5]) + pickle.dumps(v),
    "behind a large pickle": lambda v: pickle.dumps(MUCH) + pickle.dumps(v),
    "bytes behind a large pickle": lambda v: pickle.dumps(MUCH) + b"step %d." % v,
    "behind a file of joblib": lambda v: dumped(5) + dumped(v),
    "the second stream": lambda v: zlib.compress(b"abc") + zlib.compress(b"%d" % v),
    "behind a stream": lambda v: zlib.compress(b"abc") + b"\xff%d" % v,
    "behind the 64 MiB that are decoded": lambda v: gzip.compress(bytes(64 << 20) + b"%d" % v, 1, mtime=0),
    "the second tar archive": lambda v: tar(5) + tar(v),
    "behind a tar archive": lambda v: tar(5) + b"step %d" % v,
    "a link in a tar archive": lambda v: tar(v, link=True),
    "the last of many rows": lambda v: table(v, 50_001),
    "the version that a program sets": lambda v: table(v, words="user_version"),
    "words beside arrays": lambda v: save({"a": np.ones(2)}, {"step": str(v)}),
    "the first of two members of one name": twice,
    "the first of two files of one name": lambda v: tar(v)[:1024] + tar(5),
    "the first of two equal keys": lambda v: b'{"a": %d, "a": 5}' % v,
    "the first of two equal keys, deep": lambda v: b'[{"b": {"a": [%d], "a": 5}}]' % v,
    "behind what marshal wrote": lambda v: marshal.dumps([5]) + marshal.dumps(v),
}


@pytest.mark.parametrize("what", FILES)
def test_a_difference_anywhere_in_a_file_is_seen(tmp_path: Path, what: str) -> None:
    name = "file.safetensors" if what == "words beside arrays" else "file"
    found = []
    for at, value in enumerate((1, 2, 1)):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / name).write_bytes(FILES[what](value))
        found.append(read_files(folder, ()))
    assert list(differing(found[0], found[1]))
    assert not list(differing(found[0], found[2]))


def test_one_archive_is_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(saved(1))
    assert [*read_files(tmp_path, ())] == ["file: len", "file: a"]


def averaging(lost: bool, word: str) -> Callable[[Path, int], Iterator[int]]:
    """Return a trainer that saves by DCP, every file of which is one save behind the other."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        mean = {name: value.detach().clone() for name, value in net.named_parameters()}
        draw = torch.Generator().manual_seed(20)
        newest = max((int(path.name) for path in folder.iterdir()), default=0)
        if newest:
            state = {"net": net.state_dict(), word: mean, "draw": draw.get_state()}
            dcp.load(state, checkpoint_id=folder / str(newest), no_dist=True)
            draw.set_state(state["draw"])
            if lost:
                mean = {name: value.detach().clone() for name, value in net.named_parameters()}
        for number in range(newest, steps):
            x = torch.randn(8, 4, generator=draw)
            net.zero_grad()
            (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
            with torch.no_grad():
                for name, value in net.named_parameters():
                    value -= 0.01 * value.grad
                    mean[name].lerp_(value, 0.1)
            if number % 4 == 3:
                state = {"net": net.state_dict(), word: mean, "draw": draw.get_state()}
                dcp.save(state, checkpoint_id=folder / str(number + 1), no_dist=True)
            yield number + 1

    return train


@pytest.mark.parametrize("word", ["ema", "q7"])
def test_an_average_that_only_shards_of_dcp_hold_is_not_lost_in_silence(word: str) -> None:
    with warnings.catch_warnings(action="ignore"):  # of no group of processes
        clean, lossy = (
            parity.resumes(averaging(lost, word), steps=14, stop_at=9, mode="inline", scenarios=("kill",))
            for lost in (False, True)
        )
    assert clean.verdict == "holds"
    assert lossy.verdict == "broken"
    assert lossy.suspects[0].path.startswith("mean[")
