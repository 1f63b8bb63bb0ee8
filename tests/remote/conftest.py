"""A store on a loopback port, and the variables that lead to it; no test reads the user's own profiles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parity.storage.stores import Objects, connect, open_store
from tests.remote.server import Server

pytest.importorskip("obstore")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server() as started:
        lead_to(started, monkeypatch, tmp_path_factory.mktemp("home"))
        yield started


def lead_to(server: Server, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Set the variables of both kinds of store, and short times."""
    values = {
        "AWS_ACCESS_KEY_ID": "AKIASECRETNAME",
        "AWS_SECRET_ACCESS_KEY": "the-secret-itself",
        "AWS_SESSION_TOKEN": "the-token-itself",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "STORAGE_EMULATOR_HOST": server.endpoint,
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "credentials"),
        "AWS_CONFIG_FILE": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr(connect, "RETRIES", 0)
    monkeypatch.setattr(connect, "RETRY_SECONDS", 2)


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest, server: Server) -> Objects:
    """Return the place `runs/a` of a bucket, of each kind of store."""
    return open_store(f"{request.param}://bucket/runs/a")
