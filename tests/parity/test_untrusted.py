"""Whatever lies in the place of a file is read within bounds or refused; nothing is followed or waited for."""

import os
from pathlib import Path

import pytest

from parity.errors import CheckpointError, RunDirectoryError
from parity.storage import MAX_BYTES, read_bytes, read_json, untrusted
from tests.parity.test_digest import KINDS, make


@pytest.mark.parametrize("text", ["{}", '{"a": {"b": [1, 2.5, null, true, "\\u00fc"]}}'])
def test_a_json_object_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(text)
    expected = {} if text == "{}" else {"a": {"b": [1, 2.5, None, True, "ü"]}}
    assert read_json(tmp_path / "meta.json") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"[]", "expected an object, got list"),
        (b"null", "expected an object, got NoneType"),
        (b'{"a": 1, "a": 2}', "a name occurs twice"),
        (b'{"a": {"b": 1, "b": 2}}', "a name occurs twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": "\xff"}', "can't decode byte"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b"[" * 200_000, "recursion"),
        (b'{"a":' * 200_000, "recursion"),
    ],
)
def test_what_is_no_plain_json_object_is_refused(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=rf"meta\.json cannot be read: .*{message}"):
        read_json(tmp_path / "meta.json")


def test_more_values_than_a_checkpoint_has_are_not_made_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "MAX_VALUES", 5)
    (tmp_path / "meta.json").write_text('{"a": [1, 2, 3, 4]}')
    assert read_json(tmp_path / "meta.json") == {"a": [1, 2, 3, 4]}
    for text in ('{"a": [1, 2, 3, 4, 5]}', '{"a": [[[[[]]]]]}', '{"a": {"b": {"c": {"d": {"e": {}}}}}}'):
        (tmp_path / "meta.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"meta\.json holds more than 5 values"):
            read_json(tmp_path / "meta.json")


def test_a_file_longer_than_any_of_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "seal.json"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(CheckpointError, match=r"seal\.json is longer than 4 bytes"):
        read_bytes(path, 4)
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(CheckpointError, match=rf"seal\.json is longer than {MAX_BYTES} bytes"):
        read_json(path)
    assert len(read_bytes(path, None)) == MAX_BYTES + 1


@pytest.mark.parametrize("kind", [*KINDS, "directory", "nothing"])
def test_what_is_no_plain_file_is_refused_by_the_error_that_was_asked_for(kind: str, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    if kind == "directory":
        odd.mkdir()
    elif kind != "nothing":
        make(kind, odd)
    for failure in (CheckpointError, RunDirectoryError):
        with pytest.raises(failure, match="odd cannot be read: "):
            read_bytes(odd, failure=failure)
    with pytest.raises(CheckpointError, match="odd cannot be read: "):
        read_json(odd)
