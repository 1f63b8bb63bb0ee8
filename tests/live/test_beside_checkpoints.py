"""What a trainer puts into the directory of a checkpoint counts; what the framework puts there is one tree."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from parity.capture import Leaf, differing
from parity.checks.resume.left_files import read_files


def item(folder: Path, tree: Any, **options: Any) -> dict[str, Leaf]:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(folder / "8", args=ocp.args.PyTreeSave(tree))
    return read_files(folder, ())


@pytest.mark.parametrize("name", ["8/rng.npy", "8/d/note.txt", "8/own/x.json", "8/own/d/x"])
def test_files_beside_arrays_of_orbax_are_compared(tmp_path: Path, name: str) -> None:
    found = []
    for value in (1, 2, 1):
        folder = tmp_path / str(len(found))
        item(folder, {"w": np.ones(3)})
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        if path.suffix == ".npy":
            np.save(path, np.full(3, value))
        else:
            path.write_text(f'{{"best": {value}}}')
        found.append(read_files(folder, ()))
    assert {path.partition(":")[0] for path in differing(found[0], found[1])} == {name}
    assert not list(differing(found[0], found[2]))


@pytest.mark.parametrize(
    "options", [{}, {"use_ocdbt": False}, {"use_zarr3": True}, {"use_ocdbt": False, "use_zarr3": True}]
)
def test_what_orbax_puts_there_is_its_tree_alone(tmp_path: Path, options: dict[str, bool]) -> None:
    found = item(tmp_path, {"w": np.ones(3), "n": {"b": jnp.ones((2, 2))}}, **options)
    assert {*found} == {"8: len", "8: n.len", "8: w", "8: n.b"}


def test_a_text_among_the_arrays_hides_none(tmp_path: Path) -> None:
    one, two = (
        item(tmp_path / str(value), {"w": np.full(3, value), "text": f"run {value}", "same": np.ones(2)})
        for value in (1, 2)
    )
    assert {*differing(one, two)} == {"8: w", "8: text"}


def test_the_bytes_of_a_tree_that_cannot_be_read_are_compared(tmp_path: Path) -> None:
    item(tmp_path, {"w": np.ones(3)})
    (tmp_path / "8" / "_METADATA").write_text("{}")
    stores = [path for path in read_files(tmp_path, ()) if path.startswith(("8/d/", "8/ocdbt.process_0/d/"))]
    assert stores
    assert all(path.endswith(":") for path in stores)
