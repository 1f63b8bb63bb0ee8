"""The layer over obstore: conditional puts, ranges, listings, and one line for whatever a store says."""

import os
import resource
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parity.errors import (
    ParityError,
    RunDirectoryError,
    StoreConflictError,
    StoreError,
    StoreMissingError,
)
from parity.storage import BLOCK, digest_bytes, digest_files
from parity.storage.stores import Objects, StoreUrl, digest_objects, download, objects, open_store, parse_url, upload
from tests.remote.server import Refusal, Server, every

SECRETS = ("AKIASECRETNAME", "the-secret-itself", "the-token-itself")


@pytest.mark.breaks_first
@pytest.mark.parametrize(
    "text",
    ["s3://bucket", "s3://bucket/", "gs://bucket/a/b", "s3://my.bucket-1/a b/ü"],
)
def test_a_url_is_read(text: str) -> None:
    assert str(parse_url(text)) == text.rstrip("/")


@pytest.mark.breaks_first
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://host/x", "kind 'https' is not known"),
        ("s3:/bucket/x", "kind 's3' is not known; s3://"),
        ("s3://", "no name of a bucket"),
        ("s3://B/x", "no name of a bucket"),
        ("s3://key:the-secret-itself@bucket/x", "takes no user"),
        ("s3://bucket/x?token=the-secret-itself", "takes no user, no question mark"),
        ("s3://bucket/a/../b", "have no part that is empty"),
        ("s3://bucket/a//b", "have no part that is empty"),
        ("s3://bucket/a\nb", "must be printable"),
        (f"gs://bucket/{'a' * 801}", "at most 800 bytes"),
    ],
)
def test_a_bad_url_is_one_line_without_what_could_be_a_secret(text: str, said: str) -> None:
    with pytest.raises(RunDirectoryError, match=r"^[^\n]*$") as caught:
        parse_url(text)
    assert said in str(caught.value)
    assert "the-secret" not in str(caught.value)


def test_objects_are_put_read_listed_and_deleted(store: Objects) -> None:
    assert store.list() == {}
    store.put("a/x y", b"1")
    store.put("b", b"22")
    store.up().put("ab", b"beside")
    assert store.read("a/x y")[0] == b"1"
    assert {key: entry.size for key, entry in store.list().items()} == {"a/x y": 1, "b": 2}
    assert list(store.list("a")) == ["a/x y"]
    assert store.look("b").size == 2
    store.delete(["b", "never"])
    with pytest.raises(StoreMissingError, match="there is no such object"):
        store.read("b")
    with pytest.raises(StoreError, match="is longer than 0 bytes"):
        store.read("a/x y", most=0)


def test_a_conditional_put_is_carried_out_once(store: Objects) -> None:
    first = store.create("x", b"one")
    with pytest.raises(StoreConflictError, match="another writer changed it first"):
        store.create("x", b"other")
    second = store.swap("x", b"two", first)
    with pytest.raises(StoreConflictError, match="another writer changed it first"):
        store.swap("x", b"three", first)
    assert store.read("x")[0] == b"two"
    store.delete(["x"])
    with pytest.raises(StoreConflictError, match="another writer removed it"):
        store.swap("x", b"four", second)


@pytest.mark.parametrize("fault", ["lost", "cut"])
def test_a_lost_answer_of_a_conditional_put_is_no_conflict(
    fault: str, store: Objects, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends it again, and then fails by its own first success."""
    again = open_store(store.url)
    version = store.create("y", b"before")
    done: list[str] = []

    def once(request: Any) -> str | None:
        if request.method != "PUT" or request.key in done:
            return None
        done.append(request.key)
        return fault

    server.trouble = once
    monkeypatch.setattr("parity.storage.stores.connect.RETRIES", 2)
    again = open_store(store.url)
    try:
        again.create("x", b"mine")
        again.swap("y", b"mine too", version)
    except StoreError:  # the client does not repeat it: then the caller does
        again.create("x", b"mine")
        again.swap("y", b"mine too", version)
    assert (store.read("x")[0], store.read("y")[0]) == (b"mine", b"mine too")


def test_a_hundred_races_have_one_winner_each(store: Objects) -> None:
    begin = [store.create(f"swap{n}", b"before") for n in range(50)]
    wins: dict[str, list[int]] = {}
    barrier = threading.Barrier(2)

    def race(who: int) -> None:
        mine = open_store(store.url)
        for number in range(50):
            for key, act in (
                (f"new{number}", partial(mine.create, f"new{number}", b"%d" % who)),
                (f"swap{number}", partial(mine.swap, f"swap{number}", b"%d" % who, begin[number])),
            ):
                barrier.wait()
                try:
                    act()
                    wins.setdefault(key, []).append(who)
                except StoreConflictError:
                    pass

    threads = [threading.Thread(target=race, args=(who,)) for who in (1, 2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(wins) == 100
    assert {key: store.read(key)[0] for key in wins} == {key: b"%d" % who for key, (who,) in wins.items()}


def test_files_go_to_objects_and_come_back(store: Objects, tmp_path: Path) -> None:
    contents = {"small": b"x", "empty": b"", "sub/parts": os.urandom(2 * BLOCK + 17), "one": os.urandom(BLOCK)}
    for name, data in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    upload(store, {name: tmp_path / name for name in contents}, lambda: None)
    sizes = {name: len(data) for name, data in contents.items()}
    assert {key: entry.size for key, entry in store.list().items()} == sizes
    home = tmp_path / "back"
    home.mkdir()
    found = download(store, sizes, home)
    assert found == digest_files(tmp_path, contents) == digest_objects(store, sizes)
    assert found["sub/parts"] == digest_bytes(contents["sub/parts"])
    assert {name: (home / name).read_bytes() for name in contents} == contents
    with pytest.raises(StoreMissingError):
        digest_objects(store, {"never": 5})
    with pytest.raises(StoreError, match="gave 1 bytes from 0 on, expected 2"):
        digest_objects(store, {"small": 2})


REFUSALS: dict[str, tuple[Refusal, str, bool]] = {
    "bucket": (Refusal(404, "NoSuchBucket"), r"there is no bucket 'bucket'; create it", False),
    "permission": (Refusal(403, "AccessDenied"), r"no permission to read; docs/remote\.md", False),
    "key": (Refusal(403, "InvalidAccessKeyId", "<AWSAccessKeyId>AKIASECRETNAME</AWSAccessKeyId>"), "not know", False),
    "signature": (
        Refusal(403, "SignatureDoesNotMatch", "<StringToSign>the-token-itself</StringToSign>"), "does not know", False
    ),
    "token": (Refusal(400, "ExpiredToken", "<Token-0>the-token-itself</Token-0>"), "token has expired; renew", False),
    "clock": (Refusal(403, "RequestTimeTooSkewed"), "the clock of this machine differs", False),
    "region": (
        Refusal(400, "AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>"),
        "the bucket is in eu-west-3; set AWS_REGION", False,
    ),
    "redirect": (Refusal(301, "PermanentRedirect"), "the region is another one; set AWS_REGION", False),
    "busy": (Refusal(503, "SlowDown"), r"could not read it now \(503 SlowDown\)", True),
    "often": (Refusal(429, "TooManyRequests"), r"could not read it now \(429", True),
    "broken": (Refusal(500, "InternalError"), r"could not read it now \(500", True),
    "other": (Refusal(418, "Teapot"), r"refused to read it \(418 Teapot\)", False),
}  # fmt: skip


@pytest.mark.breaks_first
@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_is_one_line_and_says_what_to_set(kind: str, store: Objects, server: Server) -> None:
    server.refusal, said, transient = REFUSALS[kind]
    with pytest.raises(StoreError, match=said) as caught:
        store.read("x")
    assert caught.value.transient is transient
    told = "".join(map(str, (caught.value, caught.value.__cause__, caught.value.__suppress_context__)))
    assert "\n" not in told
    assert str(caught.value).startswith(f"{store.url}/x: ")
    assert not [secret for secret in SECRETS if secret in told]


def test_no_answer_is_a_transient_failure(store: Objects, server: Server) -> None:
    server.stop()
    with pytest.raises(StoreError, match="the store cannot be reached to read it") as caught:
        store.read("x")
    assert caught.value.transient


def test_no_credentials_say_which_to_set(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(StoreError, match="there are no credentials; set AWS_ACCESS_KEY_ID"):
        open_store("s3://bucket/a").read("x")


def test_a_profile_gives_keys_and_region(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name)
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text(
        "[mine]\naws_access_key_id = k\naws_secret_access_key = s\n[role]\nrole_arn = r\n"
    )
    Path(os.environ["AWS_CONFIG_FILE"]).write_text("[profile mine]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    store = open_store("s3://bucket/a")
    store.put("x", b"1")
    assert store.raw.config["region"] == "eu-west-1"
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(StoreError, match="AWS_PROFILE names 'other', and there is no such profile"):
        open_store("s3://bucket/a")


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(ParityError, match=r"pip install 'parity-suite\[remote\]'"):
        open_store("s3://bucket/a")


@pytest.mark.parametrize("fault", ["500", "503", "429", "cut", "lost", "slow"])
def test_every_third_request_fails_and_the_client_goes_on(
    fault: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "slow":
        server.trouble = every(6, fault)
    else:
        server.trouble = every(3, fault)
    monkeypatch.setattr("parity.storage.stores.connect.RETRIES", 5)
    monkeypatch.setattr("parity.storage.stores.connect.RETRY_SECONDS", 20)
    store = open_store("s3://bucket/a")
    data = os.urandom(BLOCK + 5)
    (tmp_path / "x").write_bytes(data)

    def again(act: Callable[[], Any]) -> Any:
        for _ in range(6):
            try:
                return act()
            except StoreError as error:
                if not error.transient:
                    raise
        raise AssertionError("six failures in a row")

    again(lambda: upload(store, {"x": tmp_path / "x"}, lambda: None))
    assert again(lambda: digest_objects(store, {"x": len(data)})) == digest_files(tmp_path, ["x"])


def test_a_put_that_conflicts_with_nothing_is_repeated(
    store: Objects, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers 409 while another conditional put is on its way."""
    left = [2]
    check = server.memory.check

    def busy(held: Any, asked: dict[str, str]) -> None:
        if left[0]:
            left[0] -= 1
            raise Refusal(409, "ConditionalRequestConflict")
        check(held, asked)

    monkeypatch.setattr(server.memory, "check", busy)
    store.create("x", b"1")
    monkeypatch.setattr(server.memory, "check", lambda held, asked: (_ for _ in ()).throw(Refusal(409, "Conflict")))
    monkeypatch.setattr(objects, "CONFLICTS", 2)
    with pytest.raises(StoreError, match="refuses every conditional put as a conflict"):
        store.create("y", b"1")


def test_transfers_take_bounded_memory(server: Server, tmp_path: Path) -> None:
    """The peak of this process, which holds the store too, grows by less than what is moved."""
    with (tmp_path / "x").open("wb") as file:
        for _ in range(12):
            file.write(os.urandom(BLOCK))
    store = open_store("s3://bucket/a")
    upload(store, {"x": tmp_path / "x"}, lambda: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (tmp_path / "back").mkdir()
    download(store, {"x": 12 * BLOCK}, tmp_path / "back")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 16 * BLOCK


def test_the_place_of_a_place() -> None:
    url = parse_url("s3://bucket/a/b")
    assert (url.name, str(url.parent), str(url / "c")) == ("b", "s3://bucket/a", "s3://bucket/a/b/c")
    assert StoreUrl("gs", "bucket").parent == StoreUrl("gs", "bucket")


def test_a_key_that_leads_out_of_the_directory_is_refused(server: Server, tmp_path: Path) -> None:
    server.memory.write("bucket", "a/../../x", b"1")
    store = open_store("s3://bucket/a")
    for key in ("../x", "b/../../x", "/x", "a\nb"):
        with pytest.raises(StoreError, match="is no name that a checkpoint's file has"):
            download(store, {key: 1}, tmp_path)
    assert list(tmp_path.iterdir()) == []
