"""Every command on checkpoints of other tools at a store, of every format, before and after they are sealed there."""

from __future__ import annotations

from pathlib import Path

import pytest

import parity
from parity.cli import main
from parity.storage.stores import open_store, upload
from tests.convert.test_sealing import SAVERS
from tests.formats.test_megatron import save_rank
from tests.remote.server import Server


def save_megatron(home: Path) -> Path:
    save_rank(home / "iter_0000010", "mp_rank_00")
    return home / "iter_0000010"


FORMATS = {**SAVERS, "megatron": save_megatron}

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_command_takes_it(
    kind: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    path = FORMATS[kind](tmp_path / "here")
    home = path.parent
    store, url = open_store("s3://bucket/others"), f"s3://bucket/others/{path.name}"
    upload(store, {str(one.relative_to(home)): one for one in home.rglob("*") if one.is_file()}, lambda: None)
    keys = set(server.objects)
    to = ["--to", "flax-msgpack" if kind in ("flax-msgpack", "orbax") else "torch.save"]
    to += ["--reset", "args"] if kind == "megatron" else []
    for given, code, said in (
        (["verify", url], 4, f"unverified {url}: "),
        (["inspect", url], 0, f"{url}: "),
        (["compare", url, str(path)], 0, "equal"),
        (["seal", url], 0, f"sealed      {url}: "),
        (["verify", url], 0, f"whole      {url}: "),
        (["inspect", url], 0, "sealed after it was saved"),
        (["compare", url, str(path)], 0, "equal"),
        (["convert", url, str(tmp_path / "converted"), *to], 0, "copied"),
        (["path", url, "best"], 2, "holds no run"),
        (["export", url, "best", str(tmp_path / "out")], 2, f"{url}"),
    ):
        assert main(given) == code, given
        told = capsys.readouterr()
        assert said in told.out + told.err, (given, told)
        assert "/tmp/parity-" not in told.out + told.err, (given, told)
    assert len(set(server.objects) - keys) == 1, "nothing but the seal was written"
    for key in sorted(keys):
        data = bytearray(server.objects[key])
        if not data:
            continue
        data[len(data) // 2] ^= 1
        server.memory.write("bucket", key, bytes(data))
        assert main(["verify", url]) == 1, key
        told = capsys.readouterr()
        assert f"damaged    {url}" in told.out
        assert main(["convert", url, str(tmp_path / "again"), *to]) == 2, key
        assert (err := capsys.readouterr().err).startswith(f"parity: error: {url}"), err
        data[len(data) // 2] ^= 1
        server.memory.write("bucket", key, bytes(data))
    assert parity.seal(url).wait().foreign
    assert main(["verify", url]) == 0
    capsys.readouterr()
