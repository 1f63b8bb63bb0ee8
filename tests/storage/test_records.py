"""Records on a disk that takes a part of them: no torn line stays for the next to run into."""

import errno
import json
import os

import pytest

from parity.storage import append, read_lines

pytestmark = pytest.mark.breaks_first

REAL = {name: getattr(os, name) for name in ("write", "ftruncate")}


@pytest.fixture
def disk(monkeypatch):
    """A disk that is full after some bytes, and may refuse to cut a file too."""
    state = {"room": None, "cuts": True}

    def write(handle, data):
        if state["room"] is None:
            return REAL["write"](handle, data)
        taken, state["room"] = data[: state["room"]], max(0, state["room"] - len(data))
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return REAL["write"](handle, taken)

    def ftruncate(handle, size):
        if not state["cuts"]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return REAL["ftruncate"](handle, size)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "ftruncate", ftruncate)
    return state


LINES = [json.dumps({"step": step, "loss": 0.5}) for step in (3, 4)]
BYTES = len("\n".join(LINES)) + 1


@pytest.mark.parametrize("cuts", [True, False], ids=["cut", "not cut"])
@pytest.mark.parametrize("room", range(BYTES))
def test_a_part_that_was_written_never_spoils_the_lines_after_it(room, cuts, disk, tmp_path):
    file = tmp_path / "steps.jsonl"
    append(file, [json.dumps({"step": 1}), json.dumps({"step": 2})])
    disk.update(room=room, cuts=cuts)
    with pytest.raises(OSError, match=r"No space left on device|Input/output error"):
        append(file, LINES)
    whole = [row["step"] for row in read_lines(file)]
    assert whole[:2] == [1, 2]
    assert cuts is False or whole == [1, 2]
    disk.update(room=None, cuts=True)
    append(file, LINES)  # what could not be written is written again
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["step"] for row in rows][-2:] == [3, 4]
    assert {row["step"] for row in rows} == {1, 2, 3, 4}
