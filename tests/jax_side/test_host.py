"""What an accelerator holds is fetched into memory of its own; on the CPU nothing is fetched."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_side
from jax_side.formats import host
from jax_side.formats.host import fetched, locked_copies
from jax_side.formats.tree_form import JaxForm
from jax_side.snapshot import Snapshot
from tests.support.saving import SPECS
from tests.support.small import state_of


def is_key(value: jax.Array) -> bool:
    return jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the arrays of the CPU taken for those of a GPU: XLA gives it that kind of memory too."""
    monkeypatch.setattr(host, "_is_far", lambda value: not is_key(value))


def leaves() -> dict[str, jax.Array]:
    narrow = {
        "bfloat16": jnp.arange(7, dtype=jnp.bfloat16),
        "bool": jnp.array([True, False]),
        "none": jnp.zeros((0, 3)),
    }
    return {"matrix": jnp.arange(12.0).reshape(3, 4), "count": jnp.int32(5), **narrow}


def test_nothing_of_the_cpu_is_fetched() -> None:
    assert fetched([*leaves().values(), jax.random.key(3), np.ones(3), 7, None]) == {}


def test_copies_have_every_bit_and_outlive_what_is_donated() -> None:
    live = leaves()
    expected = {name: np.array(value) for name, value in live.items()}
    copies = dict(zip(live, locked_copies(list(live.values())), strict=True))
    jax.jit(lambda x: x * 2, donate_argnums=0)(live["matrix"])
    for name, value in expected.items():
        assert (copies[name].dtype, copies[name].shape) == (value.dtype, value.shape)
        assert copies[name].tobytes() == value.tobytes()
        assert not copies[name].flags.writeable


@pytest.mark.usefixtures("far")
def test_what_is_fetched_is_not_copied_again() -> None:
    tree = {**leaves(), "key": jax.random.key(3)}
    found = fetched(tree.values())
    assert found.keys() == {id(value) for name, value in tree.items() if name != "key"}
    copied = JaxForm().copy(tree, {"matrix": np.zeros((3, 4), np.float32)})
    assert not copied["matrix"].flags.writeable
    assert copied["matrix"].tobytes() == np.asarray(tree["matrix"]).tobytes()
    assert is_key(copied["key"])


@pytest.mark.usefixtures("far")
def test_a_state_that_was_fetched_is_saved_and_restored(tmp_path: Path) -> None:
    trainer = jax_side.build(SPECS["adam"], tmp_path)
    list(trainer.steps(3))
    first = Snapshot(trainer.layout, trainer.state)
    assert not any(leaf.flags.writeable for leaf in jax.tree.leaves(first.content) if isinstance(leaf, np.ndarray))
    expected = state_of(trainer)
    trainer.save(None)
    list(trainer.steps(6))
    trainer.save(None)
    trainer.close()
    again = jax_side.build(SPECS["adam"], tmp_path)
    again.restore(3)
    assert state_of(again) == expected
    again.close()
