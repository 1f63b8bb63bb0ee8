"""A folder that is copied while a thread saves into it holds each directory under one of its names."""

from pathlib import Path
from typing import Any

import pytest

from parity.checks.running import folder as folders


@pytest.mark.parametrize("after", range(3))
def test_a_directory_that_is_renamed_meanwhile_is_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    home, copy = tmp_path / "run", tmp_path / "copy"
    for name in ("1", "2", "zz-draft"):
        (home / name).mkdir(parents=True)
        (home / name / "state").write_text(name)
    walk = folders.os.walk

    def renames(top: Any) -> Any:
        for at, found in enumerate(walk(top)):
            if at == after and (home / "zz-draft").exists():
                (home / "zz-draft").rename(home / "0")  # where the copy has been already
            yield found

    def list_once(at: Path) -> Any:
        return {str(one.relative_to(at)): one.stat().st_ino for one in at.rglob("*") if one.is_file()}

    monkeypatch.setattr(folders, "list_folder", list_once)
    monkeypatch.setattr(folders.os, "walk", renames)
    folders.copy_folder(home, copy)
    assert {str(one.relative_to(copy)) for one in copy.rglob("state")} == {"0/state", "1/state", "2/state"}
