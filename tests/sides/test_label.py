"""Every file of a checkpoint says what it is: step, epoch, best metric and config, and a restore compares them."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from parity import sides
from parity.checkpoints import LABEL, label_of, verify
from parity.errors import CheckpointError
from parity.spec import from_dict
from tests.support.saving import SPECS, reseal, saved
from tests.support.small import state_of

STEP = 3
ADAM = SPECS["adam"]
FILES = {"torch": ["state.pt", "meta.json"], "jax": ["params", "optimizer", "meta/metadata"]}
EACH_FILE = [(side, file) for side, files in FILES.items() for file in files]
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "step": (lambda label: label.update(step=4), "step 4,.* say 3:"),
    "epoch": (lambda label: label.update(epoch=7), "epoch 7,.* say 0:"),
    "best metric": (lambda label: label.update(best_metric=0.75), r"best_metric 0\.75,.* say 0\.5:"),
    "config": (lambda label: label["config"]["optimizer"].update(lr=0.5), r"config\.optimizer\.lr 0\.5,.* 0\.001:"),
    "no config": (lambda label: label.pop("config"), r"config\.\S+ nothing,"),
    "a type": (lambda label: label.update(step=3.0), r"step 3\.0,.* say 3:"),
    "a number more": (lambda label: label["config"].update(more=1), r"config\.more 1,.* say nothing:"),
    "no table": (lambda label: label.update(config="a" * 1000), "config .{0,300} say "),
}


def edited(path: Path, file: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change what a file of a checkpoint says, and seal it as a faulty saver does."""
    if file.endswith(".pt"):
        content = torch.load(path / file, weights_only=True)
        edit(content)
        torch.save(content, path / file)
    else:
        own = path / file if (path / file).is_file() else path / file / "_METADATA"
        content = json.loads(own.read_text())
        edit(content["custom_metadata"] if own.name == "_METADATA" else content)
        own.write_text(json.dumps(content))
    reseal(path)


def labels(path: Path, side: str) -> dict[str, dict[str, Any]]:
    """Return the label of every file of a checkpoint, read without this project."""
    return {file: {name: content[name] for name in LABEL} for file, content in contents(path, side).items()}


def contents(path: Path, side: str) -> dict[str, dict[str, Any]]:
    """Return what has the label in every file of a checkpoint, read without this project."""
    found = {}
    for file in FILES[side]:
        if file.endswith(".pt"):
            found[file] = torch.load(path / file)
        elif (path / file).is_file():
            found[file] = json.loads((path / file).read_text())
        else:
            found[file] = json.loads((path / file / "_METADATA").read_text())["custom_metadata"]
    return found


@pytest.mark.parametrize("side", FILES)
@pytest.mark.parametrize("name", ["adam", "loss scaler", "statistics and counters"])
@pytest.mark.takes_seconds
def test_every_file_is_labelled_as_the_run_was_when_it_was_saved(side: str, name: str, tmp_path: Path) -> None:
    trainer, path = saved(sides.load(side), SPECS[name], tmp_path)
    trainer.close()
    for label in labels(path, side).values():
        assert label == label_of(trainer.host_scalars())
        assert (label["step"], label["epoch"], label["best_metric"]) == (STEP, 0, 0.5)
        assert from_dict(label["config"]) == SPECS[name], "the resolved config, every field included"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: Any) -> dict[str, tuple[Any, Path]]:
    """Return, for each side, a trainer at step 0 and a checkpoint of its run."""
    made = {}
    for side in FILES:
        run = tmp_path_factory.mktemp(side)
        trainer, path = saved(sides.load(side), ADAM, run)
        trainer.close()
        made[side] = sides.load(side).build(ADAM, run), path
    return made


@pytest.fixture
def copied(side: str, fresh: Any) -> Iterator[tuple[Any, Path]]:
    """Give a test the trainer and the checkpoint, and put the checkpoint back as it was."""
    trainer, path = fresh[side]
    shutil.copytree(path, aside := path.parents[1] / "aside")
    yield trainer, path
    trainer.close()
    shutil.rmtree(path)
    aside.rename(path)


@pytest.mark.parametrize(("side", "file"), EACH_FILE)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_says_something_else_is_refused_with_both_values(
    side: str, file: str, change: str, copied: Any
) -> None:
    """Sealed as it is: no digest gives it away."""
    edit, message = CHANGES[change]
    other, path = copied
    edited(path, file, edit)
    assert verify(path).whole
    before = state_of(other)
    with pytest.raises(CheckpointError, match=rf"checkpoints/3/.* is labelled {message}") as found:
        other.restore("latest")
    assert len(str(found.value)) < 800
    assert state_of(other) == before


@pytest.mark.parametrize("side", FILES)
def test_a_config_that_is_no_toml_is_refused(side: str, copied: Any) -> None:
    other, path = copied
    edited(path, FILES[side][-1], lambda meta: meta["scalars"].update({"config.spec": "= 3"}))
    with pytest.raises(CheckpointError, match=r"config\.spec: |config\.spec is no TOML"):
        other.restore("latest")


@pytest.mark.parametrize("side", FILES)
def test_a_checkpoint_from_before_there_were_labels_is_restored(side: str, tmp_path: Path) -> None:
    trainer, path = saved(sides.load(side), ADAM, tmp_path)
    state = state_of(trainer)
    trainer.close()

    def without(label: dict[str, Any]) -> None:
        for name in LABEL:
            label.pop(name)

    for file in FILES[side]:
        edited(path, file, without)
    other = sides.load(side).build(ADAM, tmp_path)
    assert other.restore("latest") == STEP
    assert state_of(other) == state
    other.close()


@pytest.mark.parametrize("side", FILES)
def test_before_the_first_validation_a_loader_takes_its_own_best(side: str, tmp_path: Path) -> None:
    """No value stands where there is none; one that was written as None once is read as none."""
    trainer = sides.load(side).build(ADAM, tmp_path)
    list(trainer.steps(STEP))
    trainer.save(None)
    trainer.wait()
    state, path = state_of(trainer), tmp_path / "checkpoints" / str(STEP)
    trainer.close()
    for label in contents(path, side).values():
        assert label.get("best_metric", 0.0) == 0.0
        assert label["step"] == STEP
    for edit in (lambda label: None, lambda label: label.update(best_metric=None)):
        for file in FILES[side]:
            edited(path, file, edit)
        other = sides.load(side).build(ADAM, tmp_path)
        assert other.restore("latest") == STEP
        assert state_of(other) == state
        other.close()
    edited(path, FILES[side][-1], lambda label: label.update(best_metric=0.5))
    other = sides.load(side).build(ADAM, tmp_path)
    with pytest.raises(CheckpointError, match=r"best_metric 0\.5, .* say nothing:"):
        other.restore("latest")
    other.close()
