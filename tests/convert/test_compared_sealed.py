"""`parity compare` of sealed checkpoints that are no run's: their seals do not name every leaf."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.checkpoints import compare, sealed_alike
from parity.cli import main
from parity.convert import seal_checkpoint, writer_of
from parity.errors import CheckpointError


def two(home: Path, first: dict[str, Any], second: dict[str, Any], to: str) -> list[Path]:
    """Write two trees in a format of directories, and seal each afterwards."""
    paths = [home / name for name in ("a", "b")]
    for path, tree in zip(paths, (first, second), strict=True):
        if to == "orbax":
            import orbax.checkpoint as ocp

            ocp.PyTreeCheckpointer().save(path, tree)
        else:
            writer_of(to).write(tree, path)
        seal_checkpoint(path)
    return paths


WEIGHT = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize("words", [[], ["--bytes"], ["--all"]])
@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"w": WEIGHT, "step": 3}, 0),
        ({"w": WEIGHT, "step": 4}, 1),
        ({"w": WEIGHT + 1, "step": 3}, 1),
        ({"x": WEIGHT, "y": 3}, 5),
    ],
)
def test_what_was_sealed_afterwards_is_read(
    other: dict[str, Any], code: int, words: list[str], tmp_path: Path
) -> None:
    """Such a seal has no leaf: two of them agree about nothing."""
    paths = two(tmp_path, {"w": WEIGHT, "step": 3}, other, "orbax")
    assert main(["compare", *map(str, paths), *words]) == code
    assert not sealed_alike(*paths)
    with pytest.raises(CheckpointError, match="need not name every leaf"):
        compare(*paths)


@pytest.mark.parametrize("to", ["orbax", "dcp"])
@pytest.mark.parametrize("words", [[], ["--bytes"], ["--all"]])
@pytest.mark.parametrize("change", [{}, {"step": 4}, {"note": "b"}, {"rates": [0.1, 0.3]}])
def test_conversions_that_differ_in_values_that_are_no_arrays_differ(
    change: dict[str, Any], words: list[str], to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"model": {"w": torch.ones(3)}, "step": 3, "note": "a", "rates": [0.1, 0.2]}
    targets = []
    for name, one in (("a", state), ("b", state | change)):
        torch.save(one, tmp_path / f"{name}.pt")
        targets.append(str(tmp_path / name))
        assert main(["convert", str(tmp_path / f"{name}.pt"), targets[-1], "--to", to]) == 0
    capsys.readouterr()
    assert main(["compare", *targets, *words]) == (1 if change else 0)
    said = capsys.readouterr().out
    assert ("not read" in said) == (words != ["--bytes"])  # the array is equal by both seals
    if not words:
        assert main(["verify", targets[0], "--against", targets[1]]) == (1 if change else 0)


def test_a_conversion_and_its_source_that_was_sealed_afterwards_are_equal(tmp_path: Path) -> None:
    [source, _] = two(tmp_path, {"w": WEIGHT, "step": 3}, {"w": WEIGHT}, "orbax")
    assert main(["convert", str(source), str(tmp_path / "c"), "--to", "orbax"]) == 0
    assert main(["compare", str(source), str(tmp_path / "c")]) == 0


@pytest.mark.parametrize("size", ["same", "other"])
def test_a_file_that_was_written_again_is_not_taken_for_the_sealed_one(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop overwrites its latest checkpoint, and the seal of a conversion that lies beside it stays."""
    torch.save({"w": torch.ones(3)}, tmp_path / "a.pt")
    for name in ("b", "c"):
        assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / name), "--to", "torch.save"]) == 0
    capsys.readouterr()
    words = ["compare", str(tmp_path / "b"), str(tmp_path / "c")]
    assert main(words) == 0
    assert "by their seals, not read" in capsys.readouterr().out
    after = (tmp_path / ".b.seal.json").stat().st_mtime_ns + 1
    sealed = (tmp_path / "b").stat().st_size
    torch.save({"w": torch.zeros(3 if size == "same" else 300)}, tmp_path / "z.pt")
    assert main(["convert", str(tmp_path / "z.pt"), str(tmp_path / "z"), "--to", "torch.save"]) == 0
    (tmp_path / "b").write_bytes((tmp_path / "z").read_bytes())
    assert ((tmp_path / "b").stat().st_size == sealed) == (size == "same")
    os.utime(tmp_path / "b", ns=(after, after))
    assert main(words) == 1
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "b")]) == 0
    assert "files are newer than the seal" in " ".join(capsys.readouterr().out.split())
