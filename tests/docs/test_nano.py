"""The example that a run of a small GPT goes on in NNX: by two commands, with no rule and no name by hand."""

import re
import shlex
import sys
from pathlib import Path

import jax
import pytest
import torch

import jax_side
from parity.cli import main
from tests.docs import pages
from tests.docs.pages import ROOT

PAGE = "docs/migrate.md"
EXAMPLES = ("nano_torch", "nano_nnx")


def losses(folder: Path) -> dict[int, float]:
    rows = [line.split() for line in (folder / "losses.txt").read_text().splitlines()]
    return {int(step): float(loss) for step, loss in rows}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of PyTorch in float64 that goes on after a checkpoint at step 30, and the names of the example."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in EXAMPLES:
        (tmp_path / f"{name}.py").write_text((ROOT / "docs" / "examples" / f"{name}.py").read_text())
        sys.modules.pop(name, None)
    import nano_torch

    (tmp_path / "out").mkdir()
    for _ in nano_torch.train(tmp_path / "out", 40, every=30, dtype=torch.float64):
        pass
    (tmp_path / "out" / "ckpt.pt").rename(tmp_path / "last.pt")
    (tmp_path / "carried").mkdir()
    yield tmp_path
    for name in EXAMPLES:
        sys.modules.pop(name, None)


def commands() -> list[str]:
    return re.findall(r"^parity .* nano_.*$", pages.read(PAGE), re.MULTILINE)


def gap(one: dict[int, float], two: dict[int, float]) -> float:
    assert set(two) == set(range(30, 40))
    return max(abs(one[step] - two[step]) / abs(one[step]) for step in two)


@pytest.mark.takes_seconds
def test_the_run_goes_on_in_nnx_by_the_two_commands_of_the_page(run, monkeypatch):
    mapped, converted, _ = commands()
    with jax.enable_x64(True):
        assert main(shlex.split(mapped)[1:]) == 0
        assert main(shlex.split(converted)[1:]) == 0
        import nano_nnx

        for _ in nano_nnx.train(run / "carried", 40, dtype="float64"):
            pass
        assert gap(losses(run / "out"), losses(run / "carried")) < 1e-12
        taken = jax_side.take_over
        monkeypatch.setattr(nano_nnx.jax_side, "take_over", lambda path, model, optimizer: taken(path, model))
        (run / "carried" / "losses.txt").unlink()
        for _ in nano_nnx.train(run / "carried", 40, dtype="float64"):  # without moments and counts
            pass
        assert gap(losses(run / "out"), losses(run / "carried")) > 1e-6


@pytest.mark.soak
def test_the_handover_of_the_page_holds(run, capsys):
    mapped, _, handover = commands()
    assert main(shlex.split(mapped)[1:]) == 0
    import nano_torch

    for _ in nano_torch.train(run / "out", 30, every=30):
        pass
    (run / "out" / "ckpt.pt").rename(run / "last.pt")
    assert main(shlex.split(handover)[1:]) == 0
    assert "handed over exactly" in capsys.readouterr().out
