"""The arm without the seal saves the same state, and digests nothing of it; after it, saves are sealed again."""

import json
from pathlib import Path

import pytest

from benchmarks.saving import build, settle
from benchmarks.unsealed import NOTHING, unsealed
from parity.checkpoints import verify


def sizes(checkpoint: Path) -> dict[str, int]:
    """Return the files of a checkpoint that hold arrays, without the random part of a name, and their sizes."""
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.stat().st_size > 100_000]
    return {path.relative_to(checkpoint).parts[0]: path.stat().st_size for path in files}


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_nothing_is_digested_and_everything_is_written(side: str, tmp_path: Path) -> None:
    trainer = build(side, 50_000, tmp_path)
    path = tmp_path / "checkpoints" / "2"
    trainer.save(None)
    trainer.wait()
    assert verify(path).whole
    sealed = sizes(path)
    settle(trainer, tmp_path)
    with unsealed(side):
        trainer.save(None)
        trainer.wait()
    seal = json.loads((path / "seal.json").read_text())
    assert {digest for _, digest in seal["files"].values()} == {NOTHING.digest}
    assert seal["leaves"] == {}
    assert sizes(path) == sealed
    settle(trainer, tmp_path)
    trainer.save(None)
    trainer.close()
    assert verify(path).whole
