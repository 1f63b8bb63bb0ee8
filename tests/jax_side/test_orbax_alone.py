"""A checkpoint restores with Orbax alone: without this project, without arguments, every item and every leaf."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jax_side
from jax_side.formats.described import leaf_name
from jax_side.formats.items import ITEMS
from jax_side.formats.orbax_handler import PROCESS_FILES, DigestingHandler, _OwnDigests, gather
from parity.checkpoints import read_seal
from parity.state import compare_states
from tests.support.saving import SPECS, saved
from tests.support.small import bits_of

STEP = 5
DESCRIPTION = "_CHECKPOINT_METADATA"

READER = """
import sys

OURS = ("jax_side", "parity", "torch_side")

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OURS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
for name in OURS:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} can be imported: this proves nothing")

import json
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

def words(leaf):
    typed = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if typed else leaf)

jax.config.update("jax_enable_x64", True)  # an array of another type is cast otherwise
for run in map(Path, sys.argv[2:]):
    with ocp.CheckpointManager(run / "checkpoints") as manager:
        found = manager.restore(int(sys.argv[1]))
    leaves = {}
    for item in found.keys():
        if item == "meta":
            (run / "found.json").write_text(json.dumps(found[item]))
            continue
        for path, leaf in jax.tree_util.tree_flatten_with_path(found[item])[0]:
            name = ".".join(str(getattr(p, "key", getattr(p, "idx", p))) for p in path)
            leaves[f"{item}/{name}"] = words(leaf)
    np.savez(run / "found.npz", **leaves)
"""
"""Run by an interpreter that cannot import us; what it restores, it leaves in each run."""


def leaves_of(trainer: Any) -> dict[str, np.ndarray]:
    """Return every leaf of the live state under its item and the name that Orbax gives it."""
    leaves = {}
    for item, name in ITEMS.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(getattr(trainer.state, name))[0]:
            typed = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            leaves[f"{item}/{leaf_name(path)}"] = np.asarray(jax.random.key_data(leaf) if typed else leaf)
    return leaves


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> dict[str, tuple[Any, Path]]:
    """Return, for every kind of state, its trainer and its run, which Orbax alone has restored a checkpoint of."""
    home = tmp_path_factory.mktemp("runs")
    made = {}
    for name, spec in SPECS.items():
        run = home / name
        made[name] = saved(jax_side, spec, run, steps=STEP)[0], run
        made[name][0].close()
    command = [sys.executable, "-I", "-c", READER, str(STEP), *(str(run) for _, run in made.values())]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


@pytest.mark.parametrize("name", SPECS)
def test_orbax_alone_restores_every_leaf_of_every_item(name: str, runs: Any) -> None:
    trainer, run = runs[name]
    expected = leaves_of(trainer)
    with np.load(run / "found.npz") as found:
        assert set(found) == set(expected)
        for leaf, value in expected.items():
            assert (found[leaf].dtype, found[leaf].shape) == (value.dtype, value.shape), leaf
            assert found[leaf].tobytes() == value.tobytes(), leaf


@pytest.mark.parametrize("name", SPECS)
def test_orbax_alone_restores_the_counters_and_the_position_in_the_data(name: str, runs: Any) -> None:
    trainer, run = runs[name]
    meta = json.loads((run / "found.json").read_text())
    assert (meta["step"], meta["metric"]) == (STEP, 0.5)
    assert meta["scalars"] == json.loads(json.dumps(trainer.host_scalars()))


def test_between_them_the_checkpoints_have_every_item(runs: Any) -> None:
    items = {leaf.partition("/")[0] for trainer, _ in runs.values() for leaf in leaves_of(trainer)}
    assert items == set(ITEMS)


def test_no_class_of_ours_is_named_in_a_checkpoint(runs: Any) -> None:
    for _, run in runs.values():
        named = json.loads((run / "checkpoints" / str(STEP) / DESCRIPTION).read_text())["item_handlers"]
        assert all(handler.startswith("orbax.checkpoint.") for handler in named.values()), named


def test_a_checkpoint_that_names_a_handler_of_ours_is_restored_and_saved_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all were written once: Orbax alone could not restore those, we still can."""
    spec = SPECS["statistics and counters"]
    with monkeypatch.context() as patch:
        patch.setattr(DigestingHandler, "typestr", classmethod(lambda cls: f"{cls.__module__}.{cls.__qualname__}"))
        trainer, path = saved(jax_side, spec, tmp_path, steps=STEP)
        trainer.close()
    named = json.loads((path / DESCRIPTION).read_text())["item_handlers"]
    assert named["params"] == named["optimizer"] == "jax_side.formats.orbax_handler.DigestingHandler"
    assert DESCRIPTION in read_seal(path).files, "sealed as it is"

    other = jax_side.build(spec, tmp_path)
    assert other.restore("latest") == STEP
    assert compare_states(trainer.export_state(), other.export_state()) == []
    assert bits_of(list(other.steps(STEP + 2))) == bits_of(list(trainer.steps(STEP + 2)))
    other.save(None)
    other.close()
    assert [saved.step for saved in other.checkpoints.store.scan().whole] == [STEP, STEP + 2]


def test_a_process_looks_at_no_files_of_another_one_which_may_still_write_them(tmp_path, monkeypatch):
    """A lock of TensorStore was there when another process's folder was listed, and gone when it was looked at."""
    for index in (0, 1):
        (tmp_path / "params" / PROCESS_FILES.format(index)).mkdir(parents=True)
        (tmp_path / "params" / PROCESS_FILES.format(index) / "data").write_bytes(bytes([index]))
    real = os.scandir

    def listed(path):
        assert PROCESS_FILES.format(1) not in os.fspath(path), "it is written to"
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", listed)
        _OwnDigests([], tmp_path / "params").result()
    assert list(gather(tmp_path, ["params"])) == [f"params/{PROCESS_FILES.format(0)}/data"]
