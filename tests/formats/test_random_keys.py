"""Random keys of JAX in checkpoints of Orbax: written with their kind, so that Orbax restores typed keys."""

from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from parity.cli.main import main
from parity.convert import open_any


@pytest.mark.takes_seconds("rbg-2")
@pytest.mark.parametrize("size", [2, 3 << 20])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_conversion_keeps_the_kind_of_a_key_and_orbax_restores_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, impl: str
) -> None:
    keys = {"one": jax.random.key(3, impl=impl), "many": jax.random.split(jax.random.key(4, impl=impl), 3)}
    tree = {"params": {"w": np.zeros(size)}, "rng": keys}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", tree)
    assert main(["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--to", "orbax"]) == 0
    assert "their data alone" not in capsys.readouterr().out
    assert open_any(tmp_path / "b").arrays()["rng", "one"].random_key == impl
    like = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    with ocp.StandardCheckpointer() as checkpointer:
        got = checkpointer.restore(tmp_path / "b", like)
    for name, key in keys.items():
        assert got["rng"][name].dtype == key.dtype
        assert np.array_equal(jax.random.key_data(got["rng"][name]), jax.random.key_data(key))
    assert main(["verify", str(tmp_path / "b")]) == 0


def test_where_a_format_has_no_keys_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = {"params": {"w": np.zeros(2)}, "rng": jax.random.key(3)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", tree)
    assert main(["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--to", "flax-msgpack"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "random keys are their data alone, as flax-msgpack has no keys: rng (threefry2x32)" in said
