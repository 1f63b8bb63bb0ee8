"""A fault of a writer, planted: whatever it exchanges, changes or forgets, nothing is sealed and nothing stays."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jax_side
import torch_side
from parity.convert import Options, convert
from parity.errors import CheckpointError
from parity.formats import HUGGING_FACE, SAFETENSORS, Array, InMemory, Tree, map_leaves
from tests.convert.states import saved, trained

WRITERS = {one.format: one for one in (*torch_side.writers(), *jax_side.writers(), SAFETENSORS, HUGGING_FACE)}


def arrays(tree: Tree) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    map_leaves(tree, lambda keys, leaf: found.append(keys) if isinstance(leaf, Array) and leaf.size > 1 else None)
    return found


def changed(tree: Tree, keys: tuple[Any, ...], change: Callable[[Array], Array]) -> Tree:
    return map_leaves(tree, lambda at, leaf: change(leaf) if at == keys else leaf)


def exchanged(tree: Tree) -> Tree:
    """Exchange two arrays of one type and shape."""
    where: dict[str, list[tuple[Any, ...]]] = {}
    map_leaves(tree, lambda at, leaf: where.setdefault(str(leaf), []).append(at) if isinstance(leaf, Array) else None)
    first, second = next(ones[:2] for ones in where.values() if len(ones) > 1)
    values: dict[tuple[Any, ...], Array] = {}
    map_leaves(tree, lambda at, leaf: values.update({at: leaf}))
    return map_leaves(tree, lambda at, leaf: values.get({first: second, second: first}.get(at, at), leaf))


def zeroed(tree: Tree) -> Tree:
    return changed(tree, arrays(tree)[-1], lambda array: InMemory(np.zeros(array.shape, array.dtype)))


def a_bit(tree: Tree) -> Tree:
    def flip(array: Array) -> Array:
        made = array.load()
        made.reshape(-1).view(np.uint8)[-1] ^= 1
        return InMemory(made)

    return changed(tree, arrays(tree)[0], flip)


def a_scalar(tree: Tree) -> Tree:
    return {**tree, "step": tree["step"] + 1}


def forgotten(tree: Tree) -> Tree:
    return {key: child for key, child in tree.items() if key != next(iter(tree))}


def more(tree: Tree) -> Tree:
    return {**tree, "more": InMemory(np.zeros(3, np.float32))}


FAULTS = {
    "exchanged": exchanged,
    "zeroed": zeroed,
    "bit": a_bit,
    "scalar": a_scalar,
    "forgotten": forgotten,
    "more": more,
}


def source_for(tmp_path: Path, to: str) -> tuple[Path, Options]:
    state = trained(plain=True)
    state["model"]["layers.0.weight"][0, 0] += 1
    return saved(tmp_path, state), Options(only_params=to == "hugging-face")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("to", WRITERS)
def test_a_writer_that_writes_something_else_seals_nothing_and_leaves_nothing(
    tmp_path: Path, to: str, fault: str
) -> None:
    writer = WRITERS[to]
    if to == "hugging-face" and fault == "scalar":
        return
    source, options = source_for(tmp_path, to)
    broken = replace(writer, write=lambda tree, path: writer.write(FAULTS[fault](tree), path))
    with pytest.raises(OSError, match=r"(came back|was written|'model'|cannot|leaves).*nothing was kept"):
        convert(source, tmp_path / "out", broken, options, now=0.0)
    assert [one.name for one in tmp_path.iterdir()] == [source.name]


@pytest.mark.parametrize("to", WRITERS)
def test_a_draft_that_is_damaged_on_its_way_is_not_sealed(tmp_path: Path, to: str) -> None:
    """Cut after the writer is done: the last bytes of its largest file are gone."""
    source, options = source_for(tmp_path, to)

    def cut(tree: Tree, path: Path) -> None:
        WRITERS[to].write(tree, path)
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        largest = max(files, key=lambda one: (one.stat().st_size, one.name))
        largest.write_bytes(largest.read_bytes()[:-9])

    with pytest.raises(OSError, match="nothing was kept"):
        convert(source, tmp_path / "out", replace(WRITERS[to], write=cut), options, now=0.0)
    assert [one.name for one in tmp_path.iterdir()] == [source.name]


class Unreadable(Array):
    """An array whose file fails when it is read."""

    shape, dtype = (4,), np.dtype(np.float32)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, box: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), CheckpointError("a piece is gone")])
@pytest.mark.parametrize("to", WRITERS)
def test_a_source_that_cannot_be_read_is_not_reported_as_a_write_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, error: Exception
) -> None:
    from parity.convert import engine

    tree: Tree = {"w": InMemory(np.ones(3, np.float32)), "v": Unreadable(error)}
    monkeypatch.setattr(
        engine, "map_tree", lambda opened, to, options, ledger, like: (ledger.add("w", "copied"), tree)[1]
    )
    source = saved(tmp_path, {"w": np.ones(3).tolist()})
    with pytest.raises(CheckpointError, match=r"a piece is gone|cannot be read: .*Input/output error") as caught:
        convert(source, tmp_path / "out", WRITERS[to], Options(), now=0.0)
    assert "writ" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == [source.name]
