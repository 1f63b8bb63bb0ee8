"""Where a JAX process finds its place among several, and what keeps JAX from aborting when process 0 is gone."""

import socket

import pytest

from jax_side import processes
from parity.contract import Place
from parity.errors import SpecError
from parity.spec import load

NAMES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def given(monkeypatch, *values):
    for name, value in zip(NAMES, values, strict=True):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ((None, None, None), None),
        (("", "", ""), None),
        (("host:1234", "1", "0"), None),
        (("host:1234", "2", "0"), Place(address="host:1234", index=0, count=2)),
        (("[::1]:1234", "3", "2"), Place(address="[::1]:1234", index=2, count=3)),
    ],
)
def test_the_environment_names_the_place_or_none(values, place, monkeypatch):
    given(monkeypatch, *values)
    assert processes.place() == place
    if place is not None:
        assert (place.host, place.port) == (values[0].rpartition(":")[0].strip("[]"), 1234)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("host:1", None, None), r"JAX_NUM_PROCESSES: is not set, but JAX_COORDINATOR_ADDRESS=host:1 is; several"),
        (("host:1", "2", None), r"JAX_PROCESS_ID: is not set, but .* are|JAX_PROCESS_ID: is not set, but"),
        ((None, "2", "1"), r"JAX_COORDINATOR_ADDRESS: is not set, but JAX_NUM_PROCESSES=2, JAX_PROCESS_ID=1 is"),
        (("host:1", "two", "1"), r"JAX_NUM_PROCESSES: expected an integer of at least 1, got 'two'"),
        (("host:1", "2", "-1"), r"JAX_PROCESS_ID: expected an integer of at least 0, got '-1'"),
        (("host:1", "2", "2"), r"JAX_PROCESS_ID: expected 0 to 1 \(of JAX_NUM_PROCESSES=2\), got 2"),
        (("host", "2", "0"), r"JAX_COORDINATOR_ADDRESS: expected host:port of process 0, got 'host'"),
        (("host:port", "2", "0"), r"JAX_COORDINATOR_ADDRESS: expected host:port of process 0, got 'host:port'"),
    ],
)
def test_a_place_that_is_named_in_part_is_refused(values, said, monkeypatch):
    given(monkeypatch, *values)
    with pytest.raises(SpecError, match=said):
        processes.place()


def test_a_mesh_that_the_processes_cannot_share_evenly_is_refused():
    place = Place(address="host:1", index=0, count=2)
    with pytest.raises(SpecError, match=r"mesh\.data: 1 is no multiple of 2, the number of processes"):
        processes.start(place, load("mlp-digits", None, ["mesh.data=1"]))


def test_processes_of_another_number_than_the_spec_asks_for_are_refused():
    place = Place(address="host:1", index=0, count=2)
    spec = load("mlp-digits", None, ["mesh.fsdp=2", "mesh.model=2", "mesh.processes=4"])
    with pytest.raises(SpecError, match=r"^mesh\.processes: 4 asked for, the run was started as 2$"):
        processes.start(place, spec)
    with pytest.raises(SpecError, match=r"^mesh: 4 is no multiple of 3, the number of processes"):
        processes.start(
            Place(address="host:1", index=0, count=3), load("mlp-digits", None, ["mesh.fsdp=2", "mesh.model=2"])
        )


def test_who_connects_through_the_relay_does_not_see_that_the_other_end_is_gone():
    with socket.create_server(("localhost", 0)) as coordinator:
        port = coordinator.getsockname()[1]
        relay = processes._Relay(Place(address=f"localhost:{port}", index=1, count=2))
        host, _, own = relay.address.rpartition(":")
        with socket.create_connection((host, int(own)), timeout=30) as near:
            near.sendall(b"there")
            far, _ = coordinator.accept()
            with far:
                assert far.recv(16) == b"there"
                far.sendall(b"back")
                assert near.recv(16) == b"back"
            near.settimeout(0.5)
            with pytest.raises(TimeoutError, match="timed out"):
                near.recv(16)


def test_when_the_near_end_leaves_the_far_end_is_left_too():
    with socket.create_server(("localhost", 0)) as coordinator:
        relay = processes._Relay(Place(address=f"localhost:{coordinator.getsockname()[1]}", index=1, count=2))
        host, _, own = relay.address.rpartition(":")
        socket.create_connection((host, int(own)), timeout=30).close()
        far, _ = coordinator.accept()
        with far:
            far.settimeout(30)
            assert far.recv(16) == b""
