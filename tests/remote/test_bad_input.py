"""Each bad input is one line that says what to set, from every command; no secret is in what anyone sees of it."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_side
from parity.cli import main
from parity.errors import CheckpointError, LockedError, RunDirectoryError, StoreError
from parity.storage.stores import open_store
from tests.remote.server import Refusal, Request, Server
from tests.remote.test_runs import URL, quickly, words

__all__ = ["quickly"]

SECRETS = ("AKIASECRETNAME", "the-secret-itself", "the-token-itself")
ECHO = "".join(f"<StringToSign>{secret}</StringToSign>" for secret in SECRETS)
"""What stores repeat of a request that they refuse."""

REFUSED: dict[str, tuple[Refusal, str]] = {
    "wrong bucket": (Refusal(404, "NoSuchBucket", ECHO), "there is no bucket 'bucket'; create it, or name"),
    "no permission": (Refusal(403, "AccessDenied", ECHO), "no permission to read; docs/remote.md lists"),
    "unknown key": (Refusal(403, "InvalidAccessKeyId", ECHO), "does not know these credentials; check AWS"),
    "wrong secret": (Refusal(403, "SignatureDoesNotMatch", ECHO), "does not know these credentials; check AWS"),
    "expired token": (Refusal(400, "ExpiredToken", ECHO), "the token has expired; renew it and set AWS"),
    "another region": (
        Refusal(400, "AuthorizationHeaderMalformed", f"<Region>eu-west-3</Region>{ECHO}"),
        "the region is another one: the bucket is in eu-west-3; set AWS_REGION",
    ),
    "clock": (Refusal(403, "RequestTimeTooSkewed", ECHO), "the clock of this machine differs from the store's"),
}  # fmt: skip


def commands(home: Path) -> list[list[str]]:
    """Return each command that takes a URL."""
    return [
        words(home / "run", 10),
        ["verify", URL],
        ["path", URL, "best"],
        ["inspect", URL],
        ["compare", URL, URL],
        ["export", URL, "best", str(home / "out")],
        ["convert", URL, str(home / "out"), "--to", "safetensors"],
        ["seal", URL],
        ["remote", "probe", URL],
    ]


def without_secrets(home: Path, told: Any, server: Server) -> bool:
    """Return whether no secret is in what was printed, written here, or written to the store."""
    seen = [told.out.encode(), told.err.encode(), *server.objects.values()]
    seen += [file.read_bytes() for file in home.rglob("*") if file.is_file()]
    return not [secret for secret in SECRETS if any(secret.encode() in one for one in seen)]


@pytest.mark.parametrize("kind", REFUSED)
def test_every_command_says_it_in_one_line(
    kind: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusal, said = REFUSED[kind]
    for given in commands(tmp_path):
        assert main(given) == 2, given
        told = capsys.readouterr()
        assert said in told.err, (given, told)
        assert (told.err.count("\n"), told.err.startswith(f"parity: error: {URL}")) == (1, True), told
        assert without_secrets(tmp_path, told, server), given
    assert list(tmp_path.iterdir()) == []


def test_the_client_itself_would_tell_and_a_script_that_fails_does_not(server: Server) -> None:
    """Of an uncaught error Python prints what it came from, too."""
    server.refusal, _ = REFUSED["wrong secret"]
    store = open_store(URL)
    with pytest.raises(Exception, match="StringToSign") as of_client:
        __import__("obstore").get(store.raw, "x")
    assert all(secret in str(of_client.value) for secret in SECRETS)
    state = {"w": torch.ones(2)}
    manager = torch_side.CheckpointManager(URL)
    for act in (
        lambda: store.read("x"), lambda: store.put("x", b""), lambda: store.list(), lambda: store.delete(["x"]),
        lambda: store.create("x", b""), lambda: torch_side.save(URL, state), lambda: torch_side.restore(URL),
        lambda: manager.save(1, {"a": state}), manager.all_steps,
    ):  # fmt: skip
        with pytest.raises(StoreError) as ours:
            act()
        told = "".join(traceback.format_exception(ours.value))
        assert not [secret for secret in SECRETS if secret in told], told
        assert repr(ours.value).count("\n") == 0


def test_an_object_that_may_not_be_removed_is_a_matter_of_permissions(server: Server) -> None:
    """S3 says so within an answer whose status is 200."""
    store = open_store(URL)
    store.put("x", b"1")

    def refuse(bucket: str, key: str) -> None:
        raise Refusal(403, "AccessDenied")

    server.memory.delete = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreError, match=r"no permission to delete; docs/remote\.md lists") as caught:
        store.delete(["x"])
    assert not caught.value.transient
    assert "AKIA" not in str(caught.value)


GOOGLE = {"type": "service_account", "client_email": "a@b", "private_key_id": "the-secret-itself"}
KEY = "-----BEGIN PRIVATE KEY-----\nthe-secret-itself\n-----END PRIVATE KEY-----\n"

SETTINGS: dict[str, tuple[str, Mapping[str, str | None], str]] = {
    "endpoint without a scheme": ("s3", {"AWS_ENDPOINT_URL_S3": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL_S3 must be"),
    "endpoint that is none": ("s3", {"AWS_ENDPOINT_URL_S3": "the-secret-itself: x"}, "AWS_ENDPOINT_URL_S3 must be"),
    "port that is none": ("s3", {"AWS_ENDPOINT_URL_S3": "http://h:the-secret-itself"}, "AWS_ENDPOINT_URL_S3 must be"),
    "secret with an end of line": ("s3", {"AWS_SECRET_ACCESS_KEY": "the-secret-itself\n"}, "AWS_SECRET_ACCESS_KEY h"),
    "token with an end of line": ("s3", {"AWS_SESSION_TOKEN": "the-token-itself\n"}, "AWS_SESSION_TOKEN holds a sp"),
    "key of other letters": ("s3", {"AWS_ACCESS_KEY_ID": "AKIASECRETNAMEé"}, "AWS_ACCESS_KEY_ID holds a space"),
    "region with a space": ("s3", {"AWS_REGION": "us east"}, "AWS_REGION holds a space"),
    "key alone": ("s3", {"AWS_SECRET_ACCESS_KEY": None}, "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"),
    "secret alone": ("s3", {"AWS_ACCESS_KEY_ID": None}, "AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not"),
    "empty": ("s3", {"AWS_ACCESS_KEY_ID": ""}, "AWS_ACCESS_KEY_ID is set to nothing; set it to its value"),
    "unknown profile": ("s3", {"AWS_PROFILE": "other"}, "AWS_PROFILE names 'other', and there is no such profile"),
    "no such file": ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": "absent"}, "names a file that is not there: "),
    "no JSON": ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": "the-secret-itself{"}, "is no readable JSON of credentials"),
    "another kind": ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": json.dumps({"type": "the-secret-itself"})}, "type is"),
    "a key that is none": (
        "gs", {"GOOGLE_APPLICATION_CREDENTIALS": json.dumps({**GOOGLE, "private_key": KEY})}, "check GOOGLE"
    ),
    "no token file": (
        "s3",
        {
            **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")),
            "AWS_WEB_IDENTITY_TOKEN_FILE": "/absent", "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
        },
        "AWS_WEB_IDENTITY_TOKEN_FILE names a file that cannot be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SETTINGS)
def test_what_the_environment_holds_is_checked_and_not_repeated(
    kind: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some of it ends the client in a panic, whose lines go past Python to stderr."""
    scheme, settings, said = SETTINGS[kind]
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    if kind == "unknown profile":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name, value in settings.items():
        if name == "GOOGLE_APPLICATION_CREDENTIALS" and value != "absent":
            (tmp_path / "google").write_text(str(value))
            value = str(tmp_path / "google")
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    url = f"{scheme}://bucket/runs/a"
    (tmp_path / "home").mkdir()
    for given in (["verify", url], words(tmp_path / "home" / "run", 10, url=url)):
        assert main(given) == 2
        told = capfd.readouterr()
        assert said in told.err
        assert (told.err.count("\n"), told.out) == (1, "")
        assert without_secrets(tmp_path / "home", told, server)


@pytest.mark.parametrize("held", ["text", "run.json", "nothing"])
def test_what_is_no_checkpoint_is_one_line(
    held: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(URL)
    if held == "text":
        store.put("notes.txt", b"nothing of a checkpoint")
    if held == "run.json":
        store.put("parity-run.json", b'{"schema": "parity.remote/1"}')
    url = f"{URL}/notes.txt" if held == "text" else URL
    before = server.objects
    for given in commands(tmp_path):
        given = [url if word == URL else word.replace(f"={URL}", f"={url}") for word in given]
        if given[1] == "probe" or (given[0] == "train" and held == "nothing"):
            continue
        assert main(given) == 2, given
        told = capsys.readouterr()
        assert told.err.count("\n") == 1, (given, told)
        assert url in told.err, (given, told)
        assert "/tmp/parity-" not in told.err, (given, told)
    with pytest.raises(CheckpointError, match=r"^[^\n]*$"):
        torch_side.restore(url)
    assert server.objects == before
    assert not [one for one in tmp_path.iterdir() if one.is_dir()]


def test_no_secret_is_in_what_a_run_with_troubles_prints_or_writes(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused in the middle, so that lines about it go through the progress of the run, its records and its end."""

    def refuse(request: Request) -> None:
        later = len(server.requests) > 30
        server.refusal = REFUSED["expired token"][0] if later else None

    server.trouble = refuse  # type: ignore[assignment]
    assert main(words(tmp_path / "run", 30, "--trace-state")) == 3
    told = capsys.readouterr()
    assert "the token has expired; renew it and set" in told.out + told.err
    assert without_secrets(tmp_path, told, server)
    server.refusal, server.trouble = None, lambda request: None
    assert main(words(tmp_path / "run", 30)) == 0
    assert without_secrets(tmp_path, capsys.readouterr(), server)


@pytest.mark.parametrize(("argv", "kept"), [(["train.py"], False), (["/bin/parity", "train"], True)])
def test_the_arguments_of_a_users_program_go_nowhere(
    argv: list[str], kept: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a lease is named by its command, in the head and in messages; ours take no key."""
    monkeypatch.setattr("sys.argv", [*argv, "--key=PLANTED"])
    with torch_side.CheckpointManager(URL) as manager:
        manager.save(1, {"a": {"w": torch.ones(2)}})
        manager.wait()
        assert any(b"PLANTED" in data for data in server.objects.values()) is kept
        monkeypatch.setenv("XDG_CACHE_HOME", os.environ["XDG_CACHE_HOME"] + "-of another machine")
        with pytest.raises(LockedError) as refused:
            torch_side.CheckpointManager(URL).save(2, {"a": {"w": torch.ones(2)}})
    assert argv[0] in str(refused.value)
    assert ("PLANTED" in str(refused.value)) is kept


def test_the_variables_of_the_tests_are_those_that_are_looked_for(server: Server) -> None:
    names: tuple[str, ...] = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    assert tuple(os.environ[name] for name in names) == SECRETS
    act: Callable[[], Any] = open_store(URL).list
    assert act() == {}


ODD_URLS = (
    "s3://AKIASECRETNAME:the-secret-itself/bucket/a",
    "s3://AKIASECRETNAME:the-secret-itself@bucket/a",
    "gs://the-secret-itself@bucket/a",
    "s3:/AKIASECRETNAME:the-secret-itself@bucket/a",
    "S3://AKIASECRETNAME:the-secret-itself@bucket/a",
    "s3a://AKIASECRETNAME:the-secret-itself@bucket/a",
    "https://AKIASECRETNAME:the-secret-itself@host/bucket/a",
    "https://host/bucket/a?X-Amz-Signature=the-secret-itself",
    "s3://bucket/a?X-Amz-Signature=the-secret-itself",
    "s3://bucket/a#the-secret-itself",
)


@pytest.mark.parametrize("url", ODD_URLS)
def test_what_stands_in_a_url_where_a_key_could_is_not_repeated(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = ["train", "--side", "torch", "--spec", "linear-regression", "--steps", "1"]
    for given in (
        ["verify", url],
        ["convert", url, str(tmp_path / "x"), "--to", "torch.save"],
        ["compare", str(tmp_path), url],
        ["report", url],
        ["remote", "probe", url],
        [*spec, "--dir", url],
        [*spec, "--dir", str(tmp_path / "run"), "--set", f"save.remote={url}"],
    ):
        with suppress(SystemExit):
            assert main(given) == 2, given
        told = capsys.readouterr()
        assert told.err
        assert not [one for one in SECRETS if one in told.out + told.err], (given, told.err)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunDirectoryError) as caught:
        torch_side.save(url, {"a": 1})
    assert not [one for one in SECRETS if one in str(caught.value)]


@pytest.mark.parametrize(
    ("url", "name", "value", "said"),
    [
        (
            "gs://bucket/a",
            "GOOGLE_APPLICATION_CREDENTIALS",
            json.dumps({**GOOGLE, "private_key": KEY}),
            "its content",
        ),
        ("gs://bucket/a", "GOOGLE_APPLICATION_CREDENTIALS", KEY, "must be the path of a file"),
        ("s3://bucket/a", "AWS_PROFILE", "the-secret-itself" * 3, "names something long, and there is no such"),
    ],
)
def test_a_key_in_place_of_where_it_lies_is_not_repeated(
    url: str, name: str, value: str, said: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(other)
    monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=said) as caught:
        open_store(url)
    assert "the-secret-itself" not in str(caught.value)
