"""docs/formats.md: which format takes which type of array, as it is written and read back."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import jax_side
import torch_side
from parity.checkpoints.trees import DTYPES
from parity.formats import SAFETENSORS, InMemory, open_checkpoint
from tests.docs import pages
from tests.docs.sources import codes

FORMATS = "docs/formats.md"
WRITERS = {one.format: one for one in (*torch_side.writers(), *jax_side.writers(), SAFETENSORS)}
EVERYWHERE = ("float64", "float32", "float16", "bfloat16", "complex64", "bool")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
OTHERS = sorted(
    {"complex128", *(name for name in dir(ml_dtypes) if name[-1].isdigit() or "float" in name)} - {"bfloat16"}
)


def taken(name: str, home: Path) -> list[str]:
    """Return the formats that take a type; what is taken must come back."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    value = np.array([0, 1], np.uint8).view(dtype) if dtype.itemsize == 1 else np.ones(2, dtype)
    found = []
    for kind, writer in WRITERS.items():
        if not writer.cannot_hold({"a": InMemory(value)}):
            writer.write({"a": InMemory(value)}, home / f"{kind}-{name}")
            array = open_checkpoint(home / f"{kind}-{name}").tree["a"]
            assert (array.dtype, array.load().tobytes()) == (dtype, value.tobytes()), (kind, name)
            found.append(kind)
    return found


def rows(home: Path) -> list[tuple[str, str]]:
    """Return the rows of the table as the code has them."""
    return [(f"`{name}`", ", ".join(f"`{one}`" for one in taken(name, home)) or "none") for name in OTHERS]


def test_the_page_says_which_format_takes_which_type() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = pages.table(FORMATS, "type", "formats that take it").rows
        assert [tuple(row) for row in table] == rows(Path(folder))


@pytest.mark.parametrize("name", [*EVERYWHERE, *INTEGERS])
def test_every_format_takes_the_types_that_it_says(tmp_path: Path, name: str) -> None:
    assert taken(name, tmp_path) == list(WRITERS)


def test_what_a_tree_does_not_save_is_named_by_its_page() -> None:
    text = Path("docs/save-anything.md").read_text()
    assert all(name in DTYPES for name in OTHERS if name.startswith("float8") and name != "float8_e4m3")
    assert not {"float8_e4m3", "uint4", "int2", "uint2", "float4_e2m1fn"} & DTYPES
    assert "all kinds but `float8_e4m3`; not uint4, int2, uint2 or float4" in text
    assert codes("`a`") == ["a"]


PLANTS: dict[Callable[[], None], list[tuple[str, str, str]]] = {
    test_the_page_says_which_format_takes_which_type: [
        (FORMATS, "| `complex128` |", "| `complex256` |"),
    ],
}


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(
    test: Callable[[], None], plant: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.expect_failure(test, *plant, monkeypatch)
