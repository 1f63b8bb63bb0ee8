"""The walk of an OCDBT store: every key with its whole name, whatever the depth of the tree."""

from pathlib import Path

import numpy as np
import pytest
import tensorstore as ts

from jax_side.formats.ocdbt import locate
from jax_side.formats.zarr import describe_array
from parity.formats import files_of, stored_values

ARRAYS = {f"model.layers.{n}.weight": np.full(n % 5 + 1, n, np.float32) for n in range(120)}


def write(store: Path, node: int) -> dict[str, bytes]:
    """Write the arrays by TensorStore, in nodes of at most so many bytes; return the keys and values."""
    values = {}
    for name, array in ARRAYS.items():
        values[f"{name}/.zarray"] = describe_array(array.shape, array.shape, array.dtype.name).encode()
        values[f"{name}/0"] = array.tobytes()
    config = {"max_decoded_node_bytes": node, "max_inline_value_bytes": 16, "compression": None}
    kvstore = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{store}/", "config": config}).result()
    transaction = ts.Transaction(atomic=True)
    for key, value in values.items():
        kvstore.with_transaction(transaction).write(key, value).result()
    transaction.commit_async().result()
    return values


@pytest.mark.parametrize(("node", "levels"), [(1 << 20, 1), (4000, 2), (400, 4)])
def test_keys_below_several_levels_of_nodes_have_their_whole_names(tmp_path: Path, node: int, levels: int) -> None:
    values = write(tmp_path, node)
    found = list(stored_values(ts, tmp_path, files_of(tmp_path)))
    assert {one.key: one.size for one in found} == {key: len(value) for key, value in values.items()}
    assert len(found) == len(values)
    depths = {len(one.nodes) for one in found}
    assert depths == {levels} if node > 400 else min(depths) >= levels


@pytest.mark.parametrize("node", [1 << 20, 4000, 400])
def test_arrays_below_several_levels_of_nodes_are_located_with_their_nodes(tmp_path: Path, node: int) -> None:
    write(tmp_path, node)
    found = locate(tmp_path)
    assert {name: sum(r.size for r in ranges if r.whole) for name, ranges in found.items()} == {
        name: array.nbytes if array.nbytes > 16 else 0 for name, array in ARRAYS.items()
    }
    roots = [ranges[0] for ranges in found.values()]
    assert len(set(roots)) == 1, "the root leads to every array"
