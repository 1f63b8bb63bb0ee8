"""The live model of a run, and its parameters alone: verified first, and equal to what was saved."""

import doctest
import importlib
import json
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch

from parity import sides
from parity.checkpoints import LABEL, label_of, read_seal
from parity.cli.main import main
from parity.errors import CheckpointError, DamagedError, RunDirectoryError
from parity.runs import RunDirectory
from parity.spec import RunSpec
from tests.support.saving import SPECS
from tests.support.sealed import flip

pytestmark = pytest.mark.takes_seconds

SIDES = ("jax", "torch")
each_side = pytest.mark.parametrize("side", SIDES)
KINDS = ("adam", "statistics and counters", "tied weights", "two groups")
ADAM = SPECS["adam"]


def run_of(side: str, spec: RunSpec, home: Path) -> Any:
    """Train a run of a few steps in a directory, two checkpoints of it; return its trainer."""
    trainer = sides.load(side).build(spec, home)
    RunDirectory(home).open(trainer.identity, side)
    for step, metric in ((2, 0.9), (4, 0.1)):
        list(trainer.steps(step))
        trainer.save(metric)
    trainer.close()
    return trainer


def logits(side: str, model: Any, inputs: Any, precision: str) -> np.ndarray:
    if side == "jax":
        with jax.enable_x64(precision == "float64"):
            return np.asarray(model(inputs))
    with torch.no_grad():
        given = torch.from_numpy(inputs)
        return np.asarray(model(given.long() if given.dtype == torch.int32 else given))


@each_side
@pytest.mark.parametrize("name", KINDS)
def test_the_model_of_a_run_is_that_of_its_trainer(side: str, name: str, tmp_path: Path) -> None:
    trainer, home = run_of(side, SPECS[name], tmp_path), sides.load(side)
    inputs = trainer.dataset.validation_inputs
    inputs = inputs.astype(SPECS[name].precision) if inputs.dtype.kind == "f" else inputs
    targets = trainer.dataset.validation_targets
    for which, step in (("latest", 4), ("best", 2 if SPECS[name].metric == "accuracy" else 4), (2, 2)):
        trainer.restore(step)
        found = logits(side, home.load_model(tmp_path, which), inputs, SPECS[name].precision)
        validation = trainer.evaluate()
        shifted = found - found.max(-1, keepdims=True)
        right = np.take_along_axis(shifted, targets[..., None], -1)[..., 0]
        loss = float((np.log(np.exp(shifted).sum(-1)) - right).mean())
        assert loss == pytest.approx(validation.loss, rel=1e-5)
    trainer.close()


def test_a_model_of_pytorch_is_in_evaluation_mode_and_the_process_is_as_it_was(tmp_path: Path) -> None:
    run_of("torch", ADAM, tmp_path)
    random.seed(1), torch.manual_seed(1)
    before = random.getstate(), torch.get_rng_state()
    model = sides.load("torch").load_model(str(tmp_path))
    assert not any(module.training for module in model.modules())
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


@each_side
def test_a_damaged_checkpoint_and_one_of_the_other_side_are_refused(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.checkpoints.seal.SMALL", -1)  # as with files of gigabytes: only a restore reads them
    run, other = tmp_path / "run", sides.load(next(name for name in SIDES if name != side))
    with pytest.raises(RunDirectoryError):
        sides.load(side).load_model(run)
    run_of(side, ADAM, run)
    with pytest.raises(CheckpointError, match=f"was saved by the side '{side}'"):
        other.load_model(run, 2)
    path = run / "checkpoints" / "4"
    leaf = "model.params.layers.1.bias"
    place = read_seal(path).places[leaf][0]
    flip(path / place.file, place.start)
    with pytest.raises(DamagedError, match=leaf):
        sides.load(side).load_model(run, 4)


@each_side
@pytest.mark.parametrize("name", KINDS)
def test_the_parameters_of_a_run_are_exported_alone(side: str, name: str, tmp_path: Path, capsys: Any) -> None:
    trainer = run_of(side, SPECS[name], tmp_path / "run")
    state = trainer.export_state()
    size = {}
    for dest in ("model", "model.safetensors") if side == "torch" else ("model",):
        assert main(["export", str(tmp_path / "run"), "latest", str(tmp_path / dest), "--only", "params"]) == 0
        said = capsys.readouterr().out
        assert f"{dest}: parameters of step 4 of {tmp_path / 'run'}, verified" in said
        assert "For inference only: optimizer, schedule, loss scaler, random streams" in said
        size[dest] = len(found := exported(side, tmp_path / dest))
        arrays = [value for leaf, value in state.arrays.items() if leaf.startswith("model.")]
        assert sorted(value.size for value in found.values()) == sorted(value.size for value in arrays)
        if side == "torch":
            trainer.model.load_state_dict({key: torch.tensor(value) for key, value in found.items()}, strict=True)
            assert all(np.array_equal(trainer.model.state_dict()[key].numpy(), found[key]) for key in found)
    assert len(set(size.values())) == 1
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def exported(side: str, dest: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an export by name, read by its framework alone."""
    if dest.suffix:
        from safetensors.torch import load_file

        return {key: value.numpy() for key, value in load_file(dest).items()}
    if side == "torch":
        return {key: value.numpy() for key, value in torch.load(dest).items()}
    found = {}
    with jax.enable_x64(True), ocp.PyTreeCheckpointer() as checkpointer:
        for item in dest.iterdir():
            for path, value in jax.tree_util.tree_flatten_with_path(checkpointer.restore(item.resolve()))[0]:
                found[f"{item.name}{jax.tree_util.keystr(path)}"] = np.asarray(value)
    return found


def test_an_export_says_what_it_is(tmp_path: Path) -> None:
    from safetensors import safe_open

    trainer = run_of("torch", ADAM, tmp_path / "run")
    main(["export", str(tmp_path / "run"), "2", str(tmp_path / "model.safetensors"), "--only", "params"])
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        label = {name: json.loads(value) for name, value in file.metadata().items()}
    trainer.restore(2)
    assert label == label_of(trainer.host_scalars())
    assert set(label) == {*LABEL}
    trainer.close()


@each_side
def test_an_export_that_is_not_what_was_sealed_is_not_shipped(side: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Planted: a copy that loses a bit."""
    run_of(side, ADAM, tmp_path / "run")
    if side == "torch":
        real = torch.save
        broken = {"layers.0.bias": torch.full((16,), 7.0)}
        monkeypatch.setattr(torch, "save", lambda state, dest: real({**state, **broken}, dest))
    else:
        import shutil

        copy = shutil.copytree

        def spoiled(source: Any, dest: Any, *rest: Any, **options: Any) -> None:
            copy(source, dest, *rest, **options)
            if Path(dest, "manifest.ocdbt").exists():
                flip(Path(dest, "manifest.ocdbt"), 20)

        monkeypatch.setattr(shutil, "copytree", spoiled)
    command = ["export", str(tmp_path / "run"), "latest", str(tmp_path / "model"), "--only", "params"]
    assert main(command) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    monkeypatch.undo()
    assert main(command) == 0
    assert main(command) == 2, "it exists, and is not replaced"


def test_a_name_of_a_file_is_refused_for_a_directory_of_items(tmp_path: Path, capsys: Any) -> None:
    run_of("jax", ADAM, tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "best", str(tmp_path / "m.safetensors"), "--only", "params"]) == 2
    assert "a directory of Orbax items" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


@each_side
def test_the_examples_give_what_they_say(side: str) -> None:
    found = doctest.testmod(importlib.import_module(f"{side}_side.inference"))
    assert found.attempted > 0
    assert found.failed == 0
