"""Ctrl-C during a conversion ends it as Ctrl-C, whatever the library of the format makes of it; nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli.main import main
from parity.formats.array import MappedArray

FORMATS = ("torch.save", "safetensors", "dcp", "orbax", "flax-msgpack", "hugging-face")


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("after", [0, 3])
def test_an_interrupt_is_no_failure_of_the_disk(
    to: str, after: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.pt"
    torch.save({f"w{n}": torch.full((4,), float(n)) for n in range(6)}, source)
    before = source.read_bytes()
    read, count = MappedArray.read, [0]

    def interrupted(self: MappedArray, box: Any) -> Any:
        count[0] += 1
        if count[0] > after:
            raise KeyboardInterrupt
        return read(self, box)

    monkeypatch.setattr(MappedArray, "read", interrupted)
    assert main(["convert", str(source), str(tmp_path / "b"), "--to", to]) == 130
    assert capsys.readouterr().err.strip() == "parity: SIGINT: stopped"
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
    assert source.read_bytes() == before
    monkeypatch.setattr(MappedArray, "read", read)
    assert main(["convert", str(source), str(tmp_path / "b"), "--to", to]) == 0
