"""Where a PyTorch process finds its place among several, what it reads and writes of the whole, what is refused."""

import math
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_side
from parity import threefry
from parity.contract import Place, child_environment, devices_started
from parity.errors import SpecError
from parity.runs.launching import variables
from parity.spec import DropoutSpec, MeshSpec, load
from parity.state import LeafDigest, digest_text
from parity.twins import Share
from tests.support.small import quick
from torch_side import processes
from torch_side.dropout import Dropout, random_bits
from torch_side.formats.content import lay_out_content, map_content, read_content, write_content
from torch_side.formats.pieces import ShardPiece, runs
from torch_side.sharding import require_sharded

NAMES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def set_variables(monkeypatch, *values):
    for name in processes.environment:
        monkeypatch.delenv(name, raising=False)
    for name, value in zip(NAMES, values, strict=True):
        if value is not None:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ((None, None, None, None), None),
        (("host", "1234", None, None), None),
        (("host", "1234", "1", "0"), None),
        (("host", "1234", "2", "0"), Place(address="host:1234", index=0, count=2)),
        (("host", "1234", "3", "2"), Place(address="host:1234", index=2, count=3)),
    ],
)
def test_the_environment_names_the_place_or_none(values, place, monkeypatch):
    set_variables(monkeypatch, *values)
    assert processes.place() == place


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ("host", "1", "2", None),
            r"RANK: is not set, but MASTER_ADDR=host, MASTER_PORT=1, WORLD_SIZE=2 is; several",
        ),
        ((None, "1", "2", "0"), r"MASTER_ADDR: is not set, but MASTER_PORT=1, WORLD_SIZE=2, RANK=0 is"),
        (("host", None, "2", "0"), r"MASTER_PORT: is not set, but"),
        (("host", "port", "2", "0"), r"MASTER_PORT: expected an integer of at least 1, got 'port'"),
        (("host", "1", "two", "0"), r"WORLD_SIZE: expected an integer of at least 1, got 'two'"),
        (("host", "1", "2", "2"), r"RANK: expected 0 to 1 \(of WORLD_SIZE=2\), got 2"),
    ],
)
def test_a_place_that_is_named_in_part_is_refused(values, said, monkeypatch):
    set_variables(monkeypatch, *values)
    with pytest.raises(SpecError, match=said):
        processes.place()


def test_how_many_were_started_is_said_before_the_place_is_published(monkeypatch):
    for values, expected in [((None,) * 4, 1), (("host", "1", "1", "0"), 1), (("host", "1", "3", "2"), 3)]:
        set_variables(monkeypatch, *values)
        assert devices_started(torch_side) == expected
    set_variables(monkeypatch, "host", "1", "3", None)
    with pytest.raises(SpecError, match=r"RANK: is not set"):
        devices_started(torch_side)


def test_an_address_of_a_process_0_that_is_gone_is_not_taken(monkeypatch):
    """The store of torchrun's agent keeps what was published before a start, also by a process of another number."""
    agent = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with socket.create_server(("localhost", 0)) as gone:
        stale = f"localhost:{gone.getsockname()[1]}"
    agent.set("parity/address", stale)
    set_variables(monkeypatch, "localhost", str(agent.port), "2", "1")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with ThreadPoolExecutor(1) as pool, socket.create_server(("localhost", 0)) as listening:
        found = pool.submit(processes.place)
        with pytest.raises(TimeoutError):
            found.result(0.5)
        address = f"localhost:{listening.getsockname()[1]}"
        agent.set("parity/address", address)
        assert found.result(30) == Place(address=address, index=1, count=2)
        monkeypatch.setattr(processes, "STORE_SECONDS", 1)
        agent.set("parity/address", stale)
        with pytest.raises(SpecError, match=f"process 0 of 2 does not answer at {stale}: "):
            processes.place()
    set_variables(monkeypatch, "localhost", str(agent.port), "2", "0")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    published = processes.place()
    assert published is not None
    assert published.address not in (stale, address)
    assert agent.get("parity/address").decode() == published.address


def test_a_launched_process_finds_its_place_and_one_of_a_check_none(monkeypatch):
    set_variables(monkeypatch, None, None, None, None)
    for name, value in variables(1, 2, 4321).items():
        monkeypatch.setenv(name, value)
    assert processes.place() == Place(address="localhost:4321", index=1, count=2)
    environment = child_environment(torch_side)
    assert not set(processes.environment) & set(environment)
    assert "PATH" in environment or "PATH" not in os.environ


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"data": 4}, r"mesh: mesh\.data = 4 x mesh\.fsdp = 1 x mesh\.model = 1 are 4 devices, and 2 processes were"),
        ({"data": 1}, r"mesh: .* are 1 devices, and 2 processes were started; a PyTorch process drives one device"),
    ],
)
def test_a_mesh_of_another_size_than_there_are_processes_is_refused(fields, said):
    spec = replace(load("mlp-digits"), mesh=MeshSpec(**fields))
    with pytest.raises(SpecError, match=said):
        processes.start(Place(address="host:1", index=0, count=2), spec)


@pytest.mark.parametrize("axis", ["data", "fsdp", "model"])
def test_a_process_alone_refuses_a_mesh_and_says_how_to_start_several(axis):
    spec = replace(load("mlp-digits"), mesh=MeshSpec(**{axis: 2}))
    said = rf"mesh\.{axis}: 2 devices asked for; .* start 2: parity launch --processes 2 -- train"
    with pytest.raises(SpecError, match=said):
        torch_side.build(spec)


@pytest.mark.parametrize(
    ("preset", "overrides", "said"),
    [
        (
            "mlp-digits",
            ["mesh.data=2", "dropout.generator=native"],
            r"dropout\.generator: 'native' draws from a stream",
        ),
        ("mlp-digits", ["mesh.fsdp=2", "optimizer.kind=muon"], r"optimizer\.kind: 'muon' needs whole matrices"),
        ("mlp-digits", ["mesh.model=2", "optimizer.kind=adafactor"], r"optimizer\.kind: 'adafactor' needs whole"),
        (
            "cnn-digits",
            ["mesh.model=2"],
            r"mesh\.model: the PyTorch side splits the layers of mlp and gpt, not of cnn",
        ),
    ],
)
def test_what_several_processes_would_compute_otherwise_is_refused(preset, overrides, said):
    spec = load(preset, None, overrides)
    with pytest.raises(SpecError, match=said):
        require_sharded(spec)
    require_sharded(load("mlp-digits", None, ["mesh.data=2", "optimizer.kind=muon"]))


@given(seed=st.integers(0, 2**32 - 1), first=st.integers(0, 3 * threefry.PIECE), n=st.integers(0, 40))
@quick(40)
def test_masks_of_a_part_are_those_of_the_whole(seed, first, n):
    key = threefry.key(seed)
    expected = threefry.bits(key, first + n)[first:]
    np.testing.assert_array_equal(threefry.bits(key, n, first), expected)
    drawn = random_bits(torch.from_numpy(key.view(np.int32)), n, first)
    np.testing.assert_array_equal(drawn.numpy().view(np.uint32), expected)


def test_bits_beyond_the_low_word_are_counted_in_the_high_one():
    key, first = threefry.key(7), 2**32 - 3
    expected = [
        a ^ b for a, b in (threefry.block(key, np.uint32(i >> 32), i % 2**32) for i in range(first, first + 6))
    ]
    np.testing.assert_array_equal(threefry.bits(key, 6, first), expected)


def test_dropout_of_a_share_drops_what_the_whole_drops():
    whole, key = torch.ones(8, 6), torch.tensor([[1, 2]], dtype=torch.int32)
    layer = Dropout(DropoutSpec(rate=0.5), 0)
    expected = layer(whole, key, train=True)
    for share in (0, 1, 2, 3):
        layer.share = share
        assert torch.equal(
            layer(whole[2 * share : 2 * share + 2], key, train=True), expected[2 * share : 2 * share + 2]
        )


@pytest.mark.parametrize("reader", ["memory", "grain"])
@pytest.mark.parametrize("count", [2, 4])
def test_shares_together_are_the_batch_and_one_has_its_digest(reader, count):
    spec = load("mlp-digits", None, ["batch=16", "accumulation=2", f"data.reader={reader}"])
    from parity.twins import load_dataset, open_stream

    dataset = load_dataset(spec)
    whole = open_stream(spec, dataset).take(5)
    shares = [Share(index=i, count=count, accumulation=2, digests=i == 0) for i in range(count)]
    chunks = [open_stream(spec, dataset, share).take(5) for share in shares]
    assert chunks[0].digests == whole.digests
    assert [chunk.digests for chunk in chunks[1:]] == [[""] * 5] * (count - 1)
    for name in ("inputs", "targets"):
        micros = [getattr(chunk, name).reshape(5, 2, 8 // count, -1) for chunk in chunks]
        expected = getattr(whole, name).reshape(5, 2, 8, -1)
        np.testing.assert_array_equal(np.concatenate(micros, 2), expected)
        assert all(getattr(chunk, name).shape[1] == 16 // count for chunk in chunks)
    assert all(chunk.after == whole.after for chunk in chunks)


@st.composite
def pieces(draw):
    """Draw an array and boxes that cover it, each element once."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=0, max_size=4)))
    array = np.arange(math.prod(shape), dtype=draw(st.sampled_from([np.float32, np.float64, np.int64]))).reshape(
        shape
    )
    boxes = [tuple((0, size) for size in shape)]
    for axis in range(len(shape)):
        if draw(st.booleans()):
            cut = draw(st.integers(0, shape[axis]))
            both = ((0, cut), (cut, shape[axis]))
            boxes = [(*box[:axis], part, *box[axis + 1 :]) for box in boxes for part in both]
    return array, boxes


@pytest.mark.takes_seconds
@given(pieces())
@quick(80)
def test_pieces_that_processes_write_and_digest_are_the_whole(drawn):
    array, boxes = drawn
    out = bytearray(array.nbytes)
    whole = LeafDigest(array.shape, array.dtype)
    for box in boxes:
        values = array[tuple(slice(low, high) for low, high in box)]
        piece = ShardPiece("leaf", 0, array.shape, box, values)
        for at, run in runs(piece):
            out[at : at + len(run)] = run
        part = LeafDigest(array.shape, array.dtype)
        part.add([low for low, _ in box], values)
        whole.merge(LeafDigest.unpacked(part.packed()))
    assert bytes(out) == array.tobytes()
    assert whole.text() == digest_text(array)


def test_a_file_that_is_laid_out_has_the_records_of_one_that_is_written(tmp_path):
    content = {"model": {"w": torch.arange(12.0).reshape(3, 4), "b": torch.ones(3)}, "lr": 0.5, "names": ["w", "b"]}
    write_content(tmp_path / "written", content)
    lay_out_content(tmp_path / "laid", content)
    assert (tmp_path / "written").stat().st_size == (tmp_path / "laid").stat().st_size
    found, mapped = read_content(tmp_path / "laid", torch.device("cpu")), map_content(tmp_path / "written")
    assert found["lr"] == mapped["lr"] == 0.5
    assert torch.equal(mapped["model"]["w"], content["model"]["w"])
    assert found["model"]["w"].shape == (3, 4)


def test_squares_of_shards_are_added_up_and_those_of_replicas_are_not(monkeypatch):
    """Without processes: the sum over an axis is doubled, as if another process had the same shard."""
    from torch_side.sharding import ShardedModel

    model = ShardedModel.__new__(ShardedModel)
    model.mesh = SimpleNamespace(
        size=lambda axis: 2 if axis == "fsdp" else 1, devices=SimpleNamespace(get_group=lambda axis: axis)
    )
    model._split = {"data": torch.tensor([False, False]), "fsdp": torch.tensor([True, False])}
    monkeypatch.setattr("torch_side.sharding.dist.all_reduce", lambda value, group: value.mul_(2))
    assert float(model.total([torch.tensor(2.0), torch.tensor(1.0)])) == 3.0  # the root of 2 * 4 + 1
