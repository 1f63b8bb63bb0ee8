"""The same against a server of somebody else: moto's S3."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from parity.checkpoints.remote import Lease, drop, read_head, send, verify_remote
from parity.errors import LockedError, StoreError
from parity.storage.stores import open_store, probe
from tests.support.sealed import save

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    values = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
    for name, value in {**values, "AWS_ENDPOINT_URL_S3": endpoint}.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="moto-bucket")
    yield "moto-bucket"
    server.stop()


def test_it_keeps_what_is_needed_and_a_checkpoint_goes_there_and_is_verified(bucket: str, tmp_path: Path) -> None:
    store = open_store(f"s3://{bucket}/runs/a")
    assert probe(store).problems == []
    lease = Lease.take(store, "one")
    with pytest.raises(LockedError, match="renewed its lease"):
        Lease.take(open_store(store.url), "two")
    for step in (1, 2):
        send(lease, save(tmp_path / "checkpoints", step), None, {})
    drop(lease, [1])
    lease.close()
    head = read_head(store)
    assert head is not None
    assert verify_remote(store, head.checkpoints[2]).whole
    assert not [key for key in store.list() if key.startswith("checkpoints/1/")]
    with pytest.raises(StoreError, match="there is no bucket 'absent'"):
        open_store("s3://absent/x").look_around()
