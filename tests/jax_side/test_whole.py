"""What is read straight from the files of a checkpoint is what Orbax reads of it; the seal sees to it."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import jax_side
from jax_side.formats import items, whole
from jax_side.formats.ocdbt import Range
from jax_side.numerics import x64
from parity.checkpoints import FILE
from parity.errors import CheckpointError
from parity.storage import parallel_read as reading
from tests.support.saving import SPECS, saved
from tests.support.small import state_of


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS)
def one(request: Any, tmp_path_factory: Any) -> Any:
    """Return a trainer and its checkpoint."""
    return saved(jax_side, request.param, tmp_path_factory.mktemp("run"))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, jax.Array]]:
    """Return item to what was read straight from its files."""
    found: dict[str, dict[int, jax.Array]] = {}

    def watched(store: Path, *rest: Any) -> dict[int, jax.Array]:
        found[store.name] = whole.read_whole(store, *rest)
        return found[store.name]

    monkeypatch.setattr(items, "read_whole", watched)
    return found


def words(tree: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    keys = (jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in tree)
    return [(str(a.dtype), a.shape, np.asarray(a).tobytes()) for a in keys]


@pytest.mark.parametrize("block", [1000, reading.BLOCK])
def test_it_is_bit_for_bit_what_orbax_reads(
    block: int, one: Any, taken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = one
    monkeypatch.setattr(reading, "BLOCK", block)
    with x64(trainer.spec.precision):
        direct = trainer.checkpoints.restore("latest", trainer.state).state
    assert taken["params"]
    assert jax.tree.structure(direct) == jax.tree.structure(trainer.state)
    monkeypatch.setattr(whole, "LEAST", 1 << 60)
    with x64(trainer.spec.precision):
        by_orbax = trainer.checkpoints.restore("latest", trainer.state).state
    assert not any(taken.values())
    assert words(jax.tree.leaves(direct)) == words(jax.tree.leaves(by_orbax))
    shardings = [[a.sharding for a in jax.tree.leaves(state)] for state in (direct, by_orbax)]
    assert shardings[0] == shardings[1]


def test_bytes_in_another_order_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files verify; only what was in memory tells that this is not what they say."""

    def rolled(ranges: Any) -> None:
        real(ranges)
        for _, target in (part for parts in ranges.values() for part in parts):
            target[:] = bytes(np.roll(target, 4))

    real = whole.read_ranges
    trainer, _ = saved(jax_side, SPECS["adam"], tmp_path)
    list(trainer.steps(6))
    before = state_of(trainer)
    monkeypatch.setattr(whole, "read_ranges", rolled)
    with pytest.raises(
        CheckpointError, match=r"3 is not what was sealed:(.*\n)*  model\.params\.layers\.0\.weight: "
    ):
        trainer.restore("latest")
    assert state_of(trainer) == before
    trainer.close()


def test_without_a_seal_all_of_it_is_left_to_orbax(tmp_path: Path, taken: dict[str, Any]) -> None:
    trainer, path = saved(jax_side, SPECS["adam"], tmp_path)
    before = state_of(trainer)
    trainer.restore(3)
    assert taken["params"]
    (path / FILE).unlink()
    trainer.restore(3)
    assert not any(taken.values())
    assert state_of(trainer) == before
    trainer.close()


def test_a_file_that_became_shorter_or_a_link_is_refused(tmp_path: Path) -> None:
    here = SingleDeviceSharding(jax.devices()[0])
    tree = {"x": jax.ShapeDtypeStruct((2048,), np.float32, sharding=here)}
    (tmp_path / "data").write_bytes(bytes(8192))
    (read,) = whole.read_whole(tmp_path, tree, {"x": [Range("data", 0, 8192, whole=True)]}).values()
    assert words([read]) == [("float32", (2048,), bytes(8192))]
    with pytest.raises(EOFError, match=r"ends at 8192 bytes; it was longer a moment ago"):
        whole.read_whole(tmp_path, tree, {"x": [Range("data", 1, 8192, whole=True)]})
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(OSError, match="link"):
        whole.read_whole(tmp_path, tree, {"x": [Range("link", 0, 8192, whole=True)]})


@pytest.mark.parametrize(
    "places",
    [
        [],
        [Range("data", 0, 8192)],
        [Range("data", 0, 4096, whole=True)],
        [Range("data", 0, 4096, whole=True), Range("data", 4096, 4096, whole=True)],
    ],
)
def test_what_does_not_lie_in_one_piece_is_orbax_s_to_read(places: list[Range], tmp_path: Path) -> None:
    tree = {"x": jax.ShapeDtypeStruct((2048,), np.float32, sharding=SingleDeviceSharding(jax.devices()[0]))}
    (tmp_path / "data").write_bytes(bytes(8192))
    assert whole.read_whole(tmp_path, tree, {"x": places}) == {}


def test_of_several_processes_each_leaves_it_to_orbax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"x": jax.ShapeDtypeStruct((2048,), np.float32, sharding=SingleDeviceSharding(jax.devices()[0]))}
    (tmp_path / "data").write_bytes(bytes(8192))
    stored = {"x": [Range("data", 0, 8192, whole=True)]}
    assert list(whole.read_whole(tmp_path, tree, stored)) == [0]
    monkeypatch.setattr(whole.jax, "process_count", lambda: 2)
    assert whole.read_whole(tmp_path, tree, stored) == {}


def test_a_large_array_is_not_copied_on_its_way_to_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = []

    def aligned(size: int) -> Any:
        addresses.append((buffer := real(size)).ctypes.data)
        return buffer

    real = whole._aligned
    monkeypatch.setattr(whole, "_aligned", aligned)
    tree = {"x": jax.ShapeDtypeStruct((1 << 20,), np.float32, sharding=SingleDeviceSharding(jax.devices("cpu")[0]))}
    (tmp_path / "data").write_bytes(bytes(4 << 20))
    (read,) = whole.read_whole(tmp_path, tree, {"x": [Range("data", 0, 4 << 20, whole=True)]}).values()
    assert [read.unsafe_buffer_pointer()] == addresses
