"""The same against a server of somebody else: moto's S3."""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from moto import settings
from moto.server import ThreadedMotoServer

from parity.checkpoints.remote import Lease, drop, read_head, send, verify_remote
from parity.cli import main
from parity.errors import LockedError, RunDirectoryError, StoreError
from parity.storage.stores import open_store, probe, probing, require_safe
from tests.support.sealed import save

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    values = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
    values["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
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


def test_a_clock_that_is_off_is_refused_and_a_region_that_it_does_not_look_at_is_not(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compares neither the region nor the time that were signed; the double does (test_region_and_clock.py)."""
    where = {"LocationConstraint": "eu-west-3"}
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"], region_name="eu-west-3")
    client.create_bucket(Bucket="elsewhere", CreateBucketConfiguration=where)  # type: ignore[arg-type]
    clock = [row for row in probing.TRIED if row[0] == "clock"]
    monkeypatch.setattr(probing, "TRIED", clock)
    assert probe(open_store("s3://elsewhere/a")).problems == []
    monkeypatch.setattr(probing, "time", SimpleNamespace(time=lambda: time.time() - 7200, sleep=time.sleep))
    with pytest.raises(RunDirectoryError, match=r"differ by 7[12]\d\d s; set that of this machine \(NTP\)"):
        require_safe(open_store(f"s3://{bucket}/a"))


@pytest.fixture
def guarded(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Have moto check signatures and permissions from now on; return the keys of a user who may only read."""
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    iam = boto3.client("iam", endpoint_url=endpoint, region_name="us-east-1")
    iam.create_user(UserName="reader")
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    allowed = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="reader", PolicyName="p", PolicyDocument=policy)
    before = min(settings.INITIAL_NO_AUTH_ACTION_COUNT, 1 << 31)
    unguarded(endpoint, 0)
    yield {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    unguarded(endpoint, int(before))


def unguarded(endpoint: str, requests: float) -> None:
    """Have moto check nothing for so many requests, and everything from then on."""
    kind = {"Content-Type": "text/plain"}
    given = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", data=str(requests).encode(), headers=kind)
    urllib.request.urlopen(given)


def test_its_refusals_are_one_line_that_says_what_to_set(
    bucket: str, guarded: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{bucket}/refused"
    for changed, said in (
        ({}, "the store does not know these credentials; check AWS_ACCESS_KEY_ID"),
        ({**guarded, "AWS_SECRET_ACCESS_KEY": "PLANTED"}, "the store does not know these credentials"),
        ({**guarded, "AWS_SESSION_TOKEN": "PLANTED", "AWS_ACCESS_KEY_ID": "ASIAPLANTED"}, "does not know these"),
    ):
        with monkeypatch.context() as patch:
            for name, value in changed.items():
                patch.setenv(name, value)
            for given in (["verify", url], ["remote", "probe", url]):
                assert main(given) == 2
                err = capsys.readouterr().err
                assert err.startswith(f"parity: error: {url}: ")
                assert said in err
                assert (err.count("\n"), "PLANTED" in err) == (1, False)
    for name, value in guarded.items():
        monkeypatch.setenv(name, value)
    assert main(["verify", url]) == 2
    assert "nothing is there" in capsys.readouterr().err, "reading is allowed"
    assert main(["remote", "probe", url]) == 2
    assert "no permission to write; docs/remote.md lists what these credentials need" in capsys.readouterr().err
    store = open_store(url)
    with pytest.raises(StoreError, match="no permission to delete"):
        store.delete(["x"])
    with pytest.raises(StoreError, match="no permission to write"):
        Lease.take(store, "one")
