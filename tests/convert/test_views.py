"""Views of one storage: what shares elements with another array is said to be parted; what does not, is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from parity.cli import main
from parity.convert.opening import open_any
from parity.convert.views import overlapping


def parts(kind: str) -> dict[str, torch.Tensor]:
    base = torch.arange(24.0)
    table = base.view(6, 4)
    return {
        "a buffer and its slices": {"flat": base, "first": base[:8], "second": base[8:]},
        "another shape": {"first": base[:8].view(2, 4), "flat": base},
        "columns and a column": {"left": table[:, :3], "right": table[:, 2:]},
        "slices": {"first": base[:8], "second": base[8:]},
        "columns": {"left": table[:, :2], "right": table[:, 2:]},
        "tied": {"table": table, "head": table},
        "every second": {"even": base[::2], "odd": base[1::2]},
    }[kind]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("a buffer and its slices", ["flat", "first", "second"]),
        ("another shape", ["first", "flat"]),
        ("columns and a column", ["left", "right"]),
        ("slices", []),
        ("columns", []),
        ("tied", []),
        ("every second", []),
    ],
)
def test_what_shares_elements_with_another_is_said(
    kind: str, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(parts(kind), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    text = capsys.readouterr().out
    line = f"views of one storage become arrays of their own, equal in value: {', '.join(said)}\n"
    assert ("views of one storage" in text) == bool(said), text
    assert not said or line in text, text


def test_many_slices_are_looked_at_once(tmp_path: Path) -> None:
    base = torch.zeros(40_000)
    torch.save({f"p{at}": one for at, one in enumerate(base.view(20_000, 2))}, tmp_path / "a.pt")
    assert overlapping(open_any(tmp_path / "a.pt").tree) == []
