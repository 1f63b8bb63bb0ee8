"""A bucket is probed once on a machine; a new prefix is tried for what its credentials may do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from parity.cli import main
from parity.errors import RunDirectoryError, StoreError
from parity.storage.stores import ask, asked, open_store, probing, require_safe
from tests.remote.conftest import lead_to
from tests.remote.mutants import IgnoresIfMatch
from tests.remote.server import Refusal, Request, Server
from tests.remote.test_runs import words

PARTS = [row for row in probing.TRIED if row[0] in ("create-only puts", "compare-and-swap puts")]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try two things of nine: which they are is nothing to what is remembered."""
    monkeypatch.setattr(probing, "TRIED", PARTS)
    monkeypatch.setattr(asked, "TRIED", PARTS)


def probed(server: Server) -> bool:
    """Return whether a probe was made since; the requests are forgotten."""
    found = any("compare-and-swap" in request.key for request in server.requests)
    server.requests.clear()
    return found


def remembered() -> list[Path]:
    return sorted(Path(os.environ["XDG_CACHE_HOME"], "parity", "probed").glob("*.json"))


def test_a_bucket_is_probed_once_and_a_new_prefix_is_tried_for_permissions(server: Server) -> None:
    require_safe(open_store("s3://bucket/a"))
    assert probed(server)
    require_safe(open_store("s3://bucket/b/c"))
    assert [request.method for request in server.requests] == ["PUT", "GET", "GET", "POST"], "S3 deletes by POST"
    assert not probed(server)
    server.memory.buckets["other"] = {}
    require_safe(open_store("s3://other/a"))
    assert probed(server), "another bucket"
    require_safe(open_store("gs://bucket/a"))
    assert probed(server), "another interface to it"
    with Server() as second, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", second.endpoint)
        require_safe(open_store("s3://bucket/a"))
        assert probed(second), "another store with a bucket of that name"
    assert server.objects == {}


@pytest.mark.parametrize(("method", "said"), [("PUT", "write"), ("POST", "delete"), ("GET", "read|list")])
def test_what_is_not_allowed_below_a_prefix_is_said_before_anything_is_trained(
    method: str, said: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_safe(open_store("s3://bucket/a"))

    def refuse(request: Request) -> None:
        held = request.key.startswith("mine/") or request.query.get("prefix", "").startswith("mine/")
        held |= "delete" in request.query
        server.refusal = Refusal(403, "AccessDenied") if held and request.method == method else None

    server.trouble = refuse  # type: ignore[assignment]
    with pytest.raises(StoreError, match=rf"no permission to ({said}); docs/remote\.md lists"):
        require_safe(open_store("s3://bucket/mine"))
    assert main(words(tmp_path / "run", 10, url="s3://bucket/mine")) == 2
    assert "no permission to" in (err := capsys.readouterr().err)
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("spoiled", ["old", "of another version", "no JSON", "a list", "from the future"])
def test_what_is_remembered_is_not_believed_for_ever(spoiled: str, server: Server) -> None:
    require_safe(open_store("s3://bucket/a"))
    (place,) = remembered()
    held = json.loads(place.read_text())
    if spoiled in ("old", "from the future"):
        held["at"] += -asked.FRESH_SECONDS - 1 if spoiled == "old" else 1e6
    if spoiled == "of another version":
        held["rows"].pop()
    text = {"no JSON": "{", "a list": "[]"}.get(spoiled, json.dumps(held))
    place.write_text(text)
    probed(server)
    require_safe(open_store("s3://bucket/b"))
    assert probed(server)
    require_safe(open_store("s3://bucket/c"))
    assert not probed(server)


def test_a_store_that_is_refused_is_asked_again_and_nothing_of_a_secret_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Server(IgnoresIfMatch()) as server:
        lead_to(server, monkeypatch, tmp_path)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint.replace("//", "//me:the-secret-itself@"))
        for _ in range(2):
            with pytest.raises(RunDirectoryError, match="compare-and-swap puts: a compare-and-swap put took"):
                require_safe(open_store("s3://bucket/a"))
            assert probed(server)
        (place,) = remembered()
        assert "the-secret-itself" not in place.name + place.read_text()
        server.memory.check = super(IgnoresIfMatch, server.memory).check  # type: ignore[method-assign, arg-type]
        require_safe(open_store("s3://bucket/a"))
        assert ask(open_store("s3://bucket/b")).safe


def test_a_prefix_that_was_taken_all_the_same_is_refused_without_being_told_so_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its head is there, and so would pass for one of a store that was asked."""
    with Server(IgnoresIfMatch()) as server:
        lead_to(server, monkeypatch, tmp_path)
        assert main(words(tmp_path / "one", 10, "--remote-unsafe")) == 0
        capsys.readouterr()
        assert main(words(tmp_path / "one", 20)) == 2
        assert "this store does not keep what checkpoints need" in capsys.readouterr().err
        probed(server)
        assert main(words(tmp_path / "one", 20, "--remote-unsafe")) == 0
        assert not probed(server), "what it does not keep is remembered"
        server.memory.check = super(IgnoresIfMatch, server.memory).check  # type: ignore[method-assign, arg-type]
        assert main(words(tmp_path / "one", 30)) == 0
        probed(server)
        assert main(words(tmp_path / "one", 40)) == 0
        assert not probed(server)
