"""docs/differences.md: every row is measured, and the setting that it names makes both equal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tests.docs import differences, pages

PAGE = "docs/differences.md"


@pytest.mark.takes_seconds
def test_the_layers_of_the_page_differ_as_it_says() -> None:
    assert list(pages.table(PAGE, "layer").rows) == differences.rows(differences.LAYERS)


@pytest.mark.takes_seconds
def test_the_losses_of_the_page_differ_as_it_says() -> None:
    assert list(pages.table(PAGE, "loss").rows) == differences.rows(differences.LOSSES)


@pytest.mark.takes_seconds
def test_the_initial_values_of_the_page_are_drawn_as_it_says() -> None:
    assert list(pages.table(PAGE, "initial values").rows) == differences.start_rows()


@pytest.mark.takes_seconds
@pytest.mark.parametrize("row", [*differences.LAYERS, *differences.LOSSES], ids=lambda row: row.what)
def test_the_defaults_differ_and_the_setting_of_the_row_makes_them_equal(row: differences.Difference) -> None:
    assert differences.figure(row.defaults) != "rounding"
    assert differences.figure(row.closed) == "rounding"


@pytest.mark.takes_seconds
def test_the_setting_of_a_row_of_initial_values_draws_as_widely() -> None:
    for _, here, there, _, closed in differences.start_rows():
        assert here == closed != there


def test_the_running_statistics_of_flax_are_float32_whatever_the_parameters_are() -> None:
    with jax.enable_x64(True):
        layer = nnx.BatchNorm(6, dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    assert (layer.scale.dtype, layer.mean.dtype, layer.var.dtype) == ("float64", "float32", "float32")
    assert "in float32 even where `param_dtype` is float64" in pages.words(pages.read(PAGE))


PLANTS: dict[Callable[[], None], list[tuple[str, str, str]]] = {
    test_the_layers_of_the_page_differ_as_it_says: [
        (PAGE, "| 1.9e-04 |", "| 1.9e-05 |"),
    ],
    test_the_losses_of_the_page_differ_as_it_says: [
        (PAGE, "`optax.squared_error`", "`optax.l2_loss`"),
    ],
    test_the_initial_values_of_the_page_are_drawn_as_it_says: [
        (PAGE, "| 1 | 0.063 |", "| 1 | 0.036 |"),
    ],
}


@pytest.mark.takes_seconds
@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(
    test: Callable[[], None], plant: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.expect_failure(test, *plant, monkeypatch)
