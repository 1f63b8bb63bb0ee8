"""The code of docs/loading.md runs as it stands on checkpoints of ours, and gets back what was saved."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

from parity import sides
from parity.cli.main import main
from parity.runs import RunDirectory
from parity.spec import RunSpec, from_dict, load
from parity.state import compare_states
from tests.docs import pages
from tests.docs.pages import expect_failure
from tests.docs.sources import codes
from tests.support.saving import SPECS, saved

pytestmark = pytest.mark.takes_seconds

PAGE = "docs/loading.md"
STEP = 100


def block(number: int) -> str:
    """Return a block of Python of the page."""
    return re.findall(r"```python\n(.*?)\n```", pages.read(PAGE), re.DOTALL)[number]


def run_of(side: str) -> Path:
    """Return the directory of a run of the page."""
    (found,) = re.findall(rf"parity train --side {side} .*--dir (\S+)", pages.read(PAGE))
    return Path(found)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> Path:
    """Return a folder in which the commands of the page were run."""
    home = tmp_path_factory.mktemp("loading")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for command in re.findall(r"^parity ((?:train|export) .*)$", pages.read(PAGE), re.MULTILINE):
            assert main(command.split()) == 0
    return home


def executed(home: Path, patch: pytest.MonkeyPatch, *numbers: int) -> dict[str, Any]:
    """Return what blocks of the page define, one after the other."""
    names: dict[str, Any] = {"__name__": "page"}
    patch.chdir(home)
    for number in numbers:
        exec(block(number), names)
    return names


def restored(side: str, home: Path) -> Any:
    """Return a trainer of a run of the page, at its last checkpoint."""
    run = home / run_of(side)
    trainer = sides.load(side).build(load("mlp-digits"), run)
    assert trainer.restore("latest") == STEP
    return trainer


def meta_of(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RunDirectory(run).checkpoints / str(STEP) / name).read_text())
    return found


def test_the_lesson_of_pytorch_continues_a_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is as good as was measured, and the next update is the trainer's, bit for bit."""
    names, trainer = executed(runs, monkeypatch, 0), restored("torch", runs)
    model, data = names["model"], trainer.dataset
    meta = meta_of(runs / run_of("torch"), "meta.json")
    assert (names["step"], names["epoch"], names["best_metric"]) == (STEP, meta["epoch"], meta["best_metric"])
    with torch.no_grad():
        found = model(torch.from_numpy(data.validation_inputs)).argmax(-1).numpy()
    assert (found == data.validation_targets).mean() == meta["metric"]
    assert names["scheduler"].get_last_lr() == trainer.scheduler.get_last_lr()
    names["scheduler"].step()
    trainer.scheduler.step()
    assert names["scheduler"].get_last_lr() == trainer.scheduler.get_last_lr()
    for one in (names, vars(trainer)):
        for p in one["model"].parameters():
            p.grad = torch.ones_like(p)
        one["optimizer"].step()
    for ours, theirs in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)  # fused there, not here
    trainer.close()


def test_the_lesson_of_jax_continues_a_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, trainer = executed(runs, monkeypatch, 1), restored("jax", runs)
    model, optimizer, data = names["jax_model"], names["jax_optimizer"], trainer.dataset
    meta = meta_of(runs / run_of("jax"), "meta/metadata")
    assert (int(optimizer.step[...]), names["epoch"]) == (STEP, meta["epoch"])
    assert names["best_metric"] == meta["best_metric"]
    assert (np.asarray(model(data.validation_inputs)).argmax(-1) == data.validation_targets).mean() == meta["metric"]
    for ours, theirs in (
        (trainer.state.params, names["nnx"].state(model, names["nnx"].Param)),
        (trainer.state.optimizer, optimizer.opt_state),
    ):
        assert [a.tobytes() for a in arrays(ours)] == [a.tobytes() for a in arrays(theirs)]
    grads = jax.tree.map(jax.numpy.ones_like, names["nnx"].state(model, names["nnx"].Param))
    state = trainer.state
    updates, _ = trainer.programs.optimizer.update(grads, state.optimizer, state.params, lr=jax.numpy.float32(1e-3))
    expected = jax.tree.map(jax.numpy.add, state.params, updates)
    optimizer.update(model, grads, lr=1e-3)
    for ours, theirs in zip(arrays(expected), arrays(names["nnx"].state(model)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    trainer.close()


def test_a_model_is_loaded_for_inference_and_exported_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = executed(runs, monkeypatch, 0, 2, 3)
    assert names["torch_logits"].shape == (5, 10)
    trainer = restored("torch", runs)
    for ours, theirs in zip(trainer.model.parameters(), names["model"].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    trainer.close()
    names, trainer = executed(runs, monkeypatch, 1, 4), restored("jax", runs)
    exported = names["nnx"].state(names["jax_model"], names["nnx"].Param)
    assert [a.tobytes() for a in arrays(exported)] == [a.tobytes() for a in arrays(trainer.state.params)]
    trainer.close()


def run_page(home: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run everything of the page from top to bottom, its commands too, and return what it defines."""
    names: dict[str, Any] = {"__name__": "page"}
    patch.chdir(home)
    for language, text in re.findall(r"^```(\w*)\n(.*?)\n```", pages.read(PAGE), re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(text, names)
        for line in text.splitlines() if not language else ():
            assert main(line.removeprefix("parity ").split()) == 0
    return names


def test_the_page_runs_from_top_to_bottom_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name still means what it meant at first, and the parameters that are loaded last are those of the runs."""
    names = run_page(tmp_path, monkeypatch)
    torch_logits, jax_logits = names["torch_logits"].detach(), np.asarray(names["jax_logits"])
    images = names["images"]
    names["model"].eval()
    with torch.no_grad():
        found = names["model"](torch.from_numpy(images))
    assert found.shape == torch_logits.shape == jax_logits.shape
    np.testing.assert_array_equal(found, torch_logits)
    np.testing.assert_allclose(names["jax_model"](images), jax_logits, rtol=1e-6)


@pytest.mark.parametrize("plant", [("class JaxNet", "class TorchNet"), ("jax_model, jax_optimizer = create()", "")])
def test_a_page_that_does_not_run_in_its_order_is_noticed(
    plant: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = plant
    text = pages.read(PAGE)
    assert text.count(old) == 1
    monkeypatch.setattr(pages, "read", lambda _: text.replace(old, new))
    with pytest.raises((TypeError, NameError), match=r"rngs|JaxNet|jax_model"):
        run_page(tmp_path, monkeypatch)


def arrays(tree: Any) -> list[Any]:
    """Return the arrays of a tree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_lesson_of_pytorch_loads_every_kind_of_state(spec: RunSpec, runs: Path, tmp_path: Path) -> None:
    """Into new objects of the framework; the position in the data and the streams are left to the reader."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(block(0).partition("\nmodel = ")[0], names)
    trainer, path = saved(sides.load("torch"), spec, tmp_path)
    other = sides.load("torch").build(spec)
    objects = other.model, other.optimizer, other.scheduler, other.scaler
    assert names["load_ckpt"](path / "state.pt", *objects) == (3, 0, 0.5)
    groups = ("model", "optimizer", "scaler")
    differences = {d.leaf for d in compare_states(trainer.export_state(), other.export_state())}
    assert [leaf for leaf in differences if leaf.startswith(groups)] == []
    assert other.scheduler.get_last_lr() == trainer.scheduler.get_last_lr()
    trainer.close()


def test_the_keys_of_a_state_are_those_that_are_saved() -> None:
    shown = [name for cell in pages.table(PAGE, "key", "what").column("key") for name in codes(cell)]
    assert sorted(shown) == sorted(KEYS)


KEYS = ("model", "optimizer", "scheduler", "scaler", "rng", "step", "epoch", "best_metric", "config")


def test_a_state_has_these_keys_and_its_config_is_the_spec(runs: Path) -> None:
    found = torch.load(runs / run_of("torch") / "checkpoints" / str(STEP) / "state.pt")
    assert sorted(found) == sorted(KEYS)
    assert from_dict(found["config"]) == load("mlp-digits", None, [f"steps={STEP}"])
    assert found["scaler"] == {}


PLANTS = {
    test_the_keys_of_a_state_are_those_that_are_saved: [
        (PAGE, "| `best_metric` |", "| `best` |"),
    ],
}
"""What a page might say instead: by the test that must notice, the page, its words and others."""


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(test: Any, plant: Any, monkeypatch: Any) -> None:
    expect_failure(test, *plant, monkeypatch)
