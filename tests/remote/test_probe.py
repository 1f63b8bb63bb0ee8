"""The probe refuses each store in which one fault is planted, and accepts the honest one and moto's."""

from pathlib import Path

import pytest

from parity.errors import RunDirectoryError, StoreError
from parity.storage.stores import open_store, probe, probing, require_safe
from tests.remote.conftest import lead_to
from tests.remote.mutants import MUTANTS
from tests.remote.server import Memory, Refusal, Server, every


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_the_honest_store_is_accepted_and_nothing_is_left(scheme: str, server: Server) -> None:
    found = probe(open_store(f"{scheme}://bucket/runs"))
    assert found.problems == []
    assert len(found.rows) == 10
    assert server.objects == {}
    assert server.memory.uploads == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_store_with_one_fault_is_refused(
    mutant: type[Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the part of the probe that is meant for it; all parts together in `make soak`."""
    monkeypatch.setattr(probing, "TRIED", [row for row in probing.TRIED if row[0] == MUTANTS[mutant]])
    with Server(mutant()) as server:
        lead_to(server, monkeypatch, tmp_path)
        with pytest.raises(RunDirectoryError, match="does not keep what checkpoints need") as caught:
            require_safe(open_store("s3://bucket/runs"))
    assert "--remote-unsafe" in str(caught.value)


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_whole_probe_refuses_it_and_names_the_part(
    mutant: type[Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Server(mutant()) as server:
        lead_to(server, monkeypatch, tmp_path)
        assert MUTANTS[mutant] in [row.name for row in probe(open_store("s3://bucket/runs")).problems]


def test_an_outage_is_no_verdict(server: Server) -> None:
    server.trouble = every(30, "503", from_then_on=True)
    with pytest.raises(StoreError, match=r"could not .* it now"):
        probe(open_store("s3://bucket/runs"))


def test_there_are_at_least_twelve() -> None:
    assert len(MUTANTS) >= 12


def test_a_store_that_refuses_is_not_judged(server: Server) -> None:
    server.refusal = Refusal(403, "AccessDenied")
    with pytest.raises(StoreError, match="no permission"):
        probe(open_store("s3://bucket/runs"))
