"""`parity export RUN latest DIR --to SIDE`: the run goes on in the other framework as it would have in its own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import verify
from parity.cli import main
from parity.contract import StepRecord, read_records, splice
from tests.support.sealed import flip

SPEC = ("--spec", "mlp-digits", "--precision", "float64", "--set", "save.every=8", "--set", "validate_every=8")
OTHER = {"torch": "jax", "jax": "torch"}


def losses(run: Path) -> dict[int, float]:
    return {step: record.loss for step, record in splice(read_records(run / "steps.jsonl", StepRecord)).items()}


@pytest.fixture(scope="module", params=["torch", "jax"])
def trained(request: Any, tmp_path_factory: Any) -> tuple[str, Path]:
    """Return a side, and what it trained for 16 steps."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "--side", request.param, *SPEC, "--dir", str(run), "--steps", "16"]) == 0
    return request.param, run


@pytest.mark.takes_seconds
def test_the_run_goes_on_in_the_other_framework(trained: tuple[str, Path], tmp_path: Path) -> None:
    side, run = trained
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    through, made = tmp_path / "through", tmp_path / "made"
    shutil.copytree(run, through)
    assert main(["export", str(run), "8", str(made), "--to", OTHER[side]]) == 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert verify(made / "checkpoints" / "8").whole
    assert losses(made) == {step: loss for step, loss in losses(run).items() if step <= 8}
    words = ["--spec", str(made / "spec.toml"), "--steps", "24"]
    assert main(["train", "--side", OTHER[side], *words, "--dir", str(made)]) == 0
    assert main(["train", "--side", side, *words, "--dir", str(through)]) == 0
    there, here = losses(made), losses(through)
    assert list(there) == list(here) == list(range(1, 25))
    assert all(abs(there[step] - here[step]) <= 1e-12 * abs(here[step]) for step in here)
    rows = [json.loads(line) for line in (made / "attempts.jsonl").read_text().splitlines()]
    assert rows[-1]["resumed_from"] == 8


@pytest.mark.takes_seconds
def test_what_crossed_is_compared_before_anything_is_there(
    trained: tuple[str, Path], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    side, run = trained
    from importlib import import_module

    trainer = type(import_module(f"{OTHER[side]}_side").build(_spec(run)))
    honest = trainer.export_state

    def drops_a_moment(self: Any, **options: Any) -> Any:
        state = honest(self, **options)
        name = next(name for name in state.arrays if "moment" in name)
        state.arrays[name] = state.arrays[name] * 0
        return state

    monkeypatch.setattr(trainer, "export_state", drops_a_moment)
    assert main(["export", str(run), "latest", str(tmp_path / "made"), "--to", OTHER[side]]) == 2
    assert f"is not on side {OTHER[side]} what it was" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _spec(run: Path) -> Any:
    from parity.spec import from_toml

    return from_toml((run / "spec.toml").read_text())


def test_what_cannot_be_handed_over_is_refused_and_leaves_nothing(
    trained: tuple[str, Path], tmp_path: Path, capsys: Any
) -> None:
    side, run = trained

    def refused(*words: object) -> str:
        assert main(["export", *map(str, words)]) == 2
        err: str = capsys.readouterr().err
        assert err.count("parity: error: ") == 1, err
        assert err.count("\n") <= 2, err
        assert list(tmp_path.iterdir()) == left
        return err

    made, left = tmp_path / "made", []
    assert "the run is of that side" in refused(run, "latest", made, "--to", side)
    assert "hands a whole run over" in refused(run, "latest", made, "--to", OTHER[side], "--only", "params")
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    left = [damaged]
    flip(max((damaged / "checkpoints" / "16").rglob("*"), key=lambda path: path.stat().st_size * path.is_file()), 99)
    assert "16" in refused(damaged, "16", made, "--to", OTHER[side])


@pytest.mark.takes_seconds
def test_a_stream_that_one_framework_alone_has_is_named(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    native = ("--set", "dropout.generator=native", "--set", "dropout.rate=0.1")
    assert main(["train", "--side", "torch", *SPEC, *native, "--dir", str(run), "--steps", "2"]) == 0
    capsys.readouterr()
    assert main(["export", str(run), "latest", str(tmp_path / "made"), "--to", "jax"]) == 2
    assert "rng.native" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
