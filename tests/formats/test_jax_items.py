"""Trees of the JAX side: what Orbax holds nothing of is read from the description, never as None."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jax_side
from parity.cli import main
from parity.errors import CheckpointError
from parity.formats import Array, open_checkpoint

BIG = 1 << 70


def plain(tree: Any) -> Any:
    if isinstance(tree, Array):
        return (tree.dtype.name, tree.shape)
    if isinstance(tree, dict):
        return {key: plain(child) for key, child in tree.items()}
    return [plain(child) for child in tree] if isinstance(tree, list | tuple) else tree


@pytest.mark.parametrize(
    ("tree", "read"),
    [
        ({"n": BIG, "w": np.ones(2)}, {"n": BIG, "w": ("float64", (2,))}),
        ({"l": [-BIG, None, (1, np.zeros(0, np.int8))]}, {"l": [-BIG, None, [1, ("int8", (0,))]]}),
        ({"z": np.zeros((0, 3), np.float32), "d": {}, "e": None}, {"z": ("float32", (0, 3)), "d": {}, "e": None}),
        ({"only": BIG}, {"only": BIG}),
        (BIG, BIG),
        (np.zeros((0, 2), np.float16), ("float16", (0, 2))),
        ({}, {}),
        ({"small": (1 << 63) - 1, "none": None, "w": np.ones(1)}, None),  # as Orbax has it
    ],
)
def test_every_value_is_read(tree: Any, read: Any, tmp_path: Path) -> None:
    jax_side.save(tmp_path / "t", tree)
    assert plain(open_checkpoint(tmp_path / "t").tree) == (plain_of(tree) if read is None else read)
    assert main(["verify", str(tmp_path / "t")]) == 0
    assert main(["inspect", str(tmp_path / "t")]) in (0, 5)


def plain_of(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: (v.dtype.name, v.shape) if isinstance(v, np.ndarray) else v for key, v in tree.items()}


def test_an_item_of_a_manager_that_holds_nothing_for_orbax_is_there(tmp_path: Path) -> None:
    with jax_side.CheckpointManager(tmp_path / "m") as manager:
        manager.save(1, {"default": {"w": np.ones(2)}, "empty": {}, "counts": {"n": BIG}})
    tree = open_checkpoint(tmp_path / "m" / "checkpoints" / "1").tree
    assert plain(tree) == {"default": {"w": ("float64", (2,))}, "empty": {}, "counts": {"n": BIG}}


@pytest.mark.parametrize("words", [[], ["--all"], ["--bytes"]])
@pytest.mark.parametrize(
    ("first", "second"),
    [(BIG, BIG + 1), (np.zeros((0, 3)), np.zeros((0, 4))), (BIG, None), (np.zeros(0), None), ((1, 2), (1, 3))],
)
def test_two_that_differ_there_are_different(first: Any, second: Any, words: list[str], tmp_path: Path) -> None:
    for name, value in (("a", first), ("b", second)):
        jax_side.save(tmp_path / name, {"w": np.ones(2), "v": value})
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), *words]) == 1
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "a"), *words]) == 0


@pytest.mark.parametrize("to", ["orbax", "flax-msgpack"])
def test_a_conversion_refuses_an_integer_that_its_format_has_not(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was written as None, and called copied."""
    jax_side.save(tmp_path / "t", {"w": np.ones(2), "n": BIG})
    assert main(["convert", str(tmp_path / "t"), str(tmp_path / "o"), "--to", to]) == 1
    assert "an integer of more than 64 bits" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("old", "new"), [('"list": [', '"list": [{"value": 1}, '), ('"dict"', '"what"'), ('"shape": [0]', '"shape": [2]')]
)
def test_a_description_that_does_not_fit_is_refused(old: str, new: str, tmp_path: Path) -> None:
    jax_side.save(tmp_path / "t", {"l": [BIG, np.zeros(0)], "w": np.ones(2)})
    meta = tmp_path / "t" / "meta.json"
    meta.write_text(meta.read_text().replace(old, new, 1))
    with pytest.raises(CheckpointError, match="describes no tree"):
        open_checkpoint(tmp_path / "t")
