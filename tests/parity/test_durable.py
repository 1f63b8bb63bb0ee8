"""What is written outlives a crash: the order of the calls, and what is left when one of them fails."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from parity.storage import (
    REMOVED,
    fsync_directory,
    fsync_files,
    fsync_tree,
    make_directory,
    move,
    named,
    reason,
    remove_tree,
    replace_file,
    write_file,
)
from tests.parity.recorded import record_calls


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_file_is_synced_once_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record_calls(monkeypatch, tmp_path)
    write_file(tmp_path / "meta.json", "größer")
    assert calls == ["fsync meta.json"]
    assert (tmp_path / "meta.json").read_text(encoding="utf-8") == "größer"


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("old")
    with pytest.raises(FileExistsError, match=r"meta\.json"):
        write_file(tmp_path / "meta.json", "new")
    assert (tmp_path / "meta.json").read_text() == "old"


def test_a_replacement_is_synced_then_renamed_then_its_directory_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latest.json").write_text("old")
    draft = f".latest.json.{os.getpid()}"
    calls = record_calls(monkeypatch, tmp_path)
    replace_file(tmp_path / "latest.json", "new")
    assert calls == [f"fsync {draft}", f"rename {draft} -> latest.json", "fsync ."]
    assert (tmp_path / "latest.json").read_text() == "new"
    assert names(tmp_path) == ["latest.json"]


def test_a_replacement_that_cannot_be_written_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latest.json").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        replace_file(tmp_path / "latest.json", "new")
    assert (tmp_path / "latest.json").read_text() == "old"
    assert names(tmp_path) == ["latest.json"]


def test_a_replacement_that_cannot_be_renamed_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latest.json").write_text("old")
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left on device"):
        replace_file(tmp_path / "latest.json", "new")
    assert (tmp_path / "latest.json").read_text() == "old"
    assert names(tmp_path) == ["latest.json"]


def test_a_draft_that_a_dead_process_of_the_same_number_left_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / f".latest.json.{os.getpid()}").write_text("half")
    replace_file(tmp_path / "latest.json", "new")
    assert (tmp_path / "latest.json").read_text() == "new"
    assert names(tmp_path) == ["latest.json"]


def test_files_that_are_not_there_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    calls = record_calls(monkeypatch, tmp_path)
    fsync_files([tmp_path / "a", tmp_path / "none", tmp_path / "b"])
    assert calls == ["fsync a", "fsync b"]


def test_only_a_directory_is_synced_as_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fsync_directory(tmp_path)
    with pytest.raises(NotADirectoryError, match="file"):
        fsync_directory(tmp_path / "file")


def test_a_tree_is_synced_whole_each_directory_behind_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draft/seal.json", "draft/params/d/shard", "draft/params/manifest", "draft/empty/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "draft/empty/x").unlink()
    calls = record_calls(monkeypatch, tmp_path)
    fsync_tree(tmp_path / "draft")
    place = {call.removeprefix("fsync "): number for number, call in enumerate(calls)}
    assert set(place) == {
        *("draft", "draft/seal.json", "draft/empty", "draft/params", "draft/params/d"),
        *("draft/params/d/shard", "draft/params/manifest"),
    }
    assert len(calls) == len(place)
    assert all(place[str(Path(name).parent)] > at for name, at in place.items() if name != "draft")


def test_a_tree_with_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").touch()
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        fsync_tree(tmp_path / "draft")


def test_every_directory_that_is_made_is_synced_into_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch, tmp_path)
    make_directory(tmp_path / "a" / "b" / "c")
    assert calls == ["mkdir a", "fsync .", "mkdir a/b", "fsync a", "mkdir a/b/c", "fsync a/b"]
    calls.clear()
    make_directory(tmp_path / "a" / "b" / "c")
    assert calls == []


def test_a_move_is_synced_where_it_went_and_then_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("from/10", "to"):
        (tmp_path / name).mkdir(parents=True)
    calls = record_calls(monkeypatch, tmp_path)
    move(tmp_path / "from" / "10", tmp_path / "to" / "10")
    move(tmp_path / "to" / "10", tmp_path / "to" / "20")
    assert calls == [
        *("rename from/10 -> to/10", "fsync to", "fsync from"),
        *("rename to/10 -> to/20", "fsync to"),
    ]


def test_what_is_removed_loses_its_name_durably_before_the_first_file_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "state.pt").touch()
    doomed = f"{REMOVED}10-{os.getpid()}"
    calls = record_calls(monkeypatch, tmp_path)
    remove_tree(tmp_path / "10")
    assert calls == [f"rename 10 -> {doomed}", "fsync .", f"rmtree {doomed}"]
    assert names(tmp_path) == []


def test_a_removal_cut_short_leaves_nothing_of_that_name_and_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "state.pt").touch()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", full)
        with pytest.raises(OSError, match="No space left on device"):
            remove_tree(tmp_path / "10")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(REMOVED)
    calls = record_calls(monkeypatch, tmp_path)
    remove_tree(left)
    assert calls == [f"rmtree {left.name}"], "it has lost its name already"
    assert names(tmp_path) == []


def test_a_failure_tells_its_operation_its_file_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "state.pt").touch()
    file, draft = tmp_path / "meta.json", tmp_path / f".meta.json.{os.getpid()}"
    doomed = tmp_path / f"{REMOVED}10-{os.getpid()}"
    for owner, function, act, expected in (
        (os, "fsync", lambda: write_file(file, "x"), f"fsync {file}"),
        (os, "fsync", lambda: fsync_directory(tmp_path), f"fsync {tmp_path}"),
        (os, "mkdir", lambda: make_directory(tmp_path / "new"), f"mkdir {tmp_path / 'new'}"),
        (os, "rename", lambda: move(tmp_path / "10", tmp_path / "20"), f"rename {tmp_path / '10'}"),
        (os, "rename", lambda: replace_file(file, "x"), f"rename {draft}"),
        (os, "unlink", lambda: remove_tree(tmp_path / "10"), f"remove {doomed}"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, function, full)
            with pytest.raises(OSError, match="No space left on device") as caught:
                act()
        assert reason(caught.value) == f"{expected}: No space left on device"


def test_the_innermost_name_of_an_operation_counts_and_the_kind_of_error_stays(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none") as caught, named(tmp_path, "write"):
        fsync_directory(tmp_path / "none")
    assert reason(caught.value) == f"fsync {tmp_path / 'none'}: No such file or directory"


def test_a_failure_that_names_nothing_is_told_by_who_caught_it(tmp_path: Path) -> None:
    nameless = OSError(errno.EIO, "Input/output error")
    assert reason(nameless, "write", tmp_path) == f"write {tmp_path}: Input/output error"
    assert reason(nameless) == "[Errno 5] Input/output error"
    assert reason(ValueError("two\n lines"), "write", tmp_path) == "two lines"
