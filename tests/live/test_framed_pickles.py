"""Journals of pickles in frames of a trainer's own; and a trainer that calls itself for each step."""

import base64
import bz2
import hashlib
import json
import lzma
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.running.checksums import signs_of_checksums
from parity.checks.running.decoded import contents
from parity.checks.running.framed import read_framed
from tests.live.small_loops import check, first

Frame = Callable[[bytes, int], bytes]


def of_length(body: bytes, at: int) -> bytes:
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


def of_text(body: bytes, at: int) -> bytes:
    return b"%d at %d\n" % (len(body), at) + body + hashlib.sha256(body).hexdigest().encode() + b"\n"


def of_place(body: bytes, at: int) -> bytes:
    return b"REC\0" + struct.pack(">QI", at + 16, zlib.adler32(body)) + body + struct.pack(">Q", len(body))


FRAMES = [of_length, of_text, of_place]


def journal(file: Path, frame: Frame, *states: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    data = b""
    for state in states:
        data += frame(state if isinstance(state, bytes) else pickle.dumps(state), len(data))
    file.write_bytes(data)
    return file.parent


@pytest.mark.parametrize("frame", FRAMES)
def test_equal_values_in_other_bytes_are_equal_and_others_are_not(frame: Frame, tmp_path: Path) -> None:
    shared = "a name that stands twice"
    twice, apart = [shared, shared, 1.5], [shared, "".join(list(shared)), 1.5]
    assert len(pickle.dumps(twice)) != len(pickle.dumps(apart))
    one = journal(tmp_path / "a" / "state", frame, {"w": 1}, twice)
    other = journal(tmp_path / "b" / "state", frame, {"w": 1}, apart)
    assert (one / "state").read_bytes() != (other / "state").read_bytes()
    assert contents(one, [], []) == contents(other, [], [])
    for name, states in (("c", [{"w": 1}, [*twice[:2], 1.25]]), ("d", [{"w": 1}]), ("e", [{"w": 2}, twice])):
        assert contents(journal(tmp_path / name / "state", frame, *states), [], []) != contents(one, [], [])


def test_what_a_frame_says_of_its_own_counts(tmp_path: Path) -> None:
    def of_version(version: int) -> Frame:
        return lambda body, at: struct.pack("<HI", version, len(body)) + body

    first_, second = (contents(journal(tmp_path / str(n) / "s", of_version(n), [n]), [], []) for n in (1, 2))
    assert first_ != second
    same = [contents(journal(tmp_path / f"v{n}" / "s", of_version(n), [5]), [], []) for n in (1, 2)]
    assert same[0] != same[1]


def test_bytes_that_only_begin_as_a_pickle_are_none() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 200_000, dtype=np.uint8).tobytes()
    assert read_framed(noise + b"\x80\x04" * 5000, lambda body: None) is None
    assert read_framed(b"\x80\x04.", lambda body: body) is None
    held = read_framed(b"\x80\x05" + noise[:9] + of_length(pickle.dumps([1, 2]), 0), pickle.loads)
    assert held is not None
    assert held[-2] == [1, 2]


def journalled(folder: Path, lost: str) -> Iterator[int]:
    """Train with a journal whose last whole record counts."""
    file = folder / "state.log"
    state: dict[str, Any] = {"w": np.zeros(3), "late": {}, "step": 0}
    data, at = file.read_bytes() if file.exists() else b"", 0
    while at < len(data):
        size, _ = struct.unpack_from("<II", data, at)
        state = pickle.loads(data[at + 8 : at + 8 + size])
        at += 8 + size
    if data and lost:
        state[lost] = {}
    for step in range(state["step"], 40):
        yield step
        w = state["w"] - 0.1 * (state["w"] - step % 3)
        late = {**state["late"], step % 4: 0.5 * state["late"].get(step % 4, 0.0) + float(w[0])}
        state = {"w": w * (1 - 0.01 * late[step % 4]), "late": late, "step": step + 1}
        if step % 6 == 5:
            with file.open("ab") as log:
                log.write(of_length(pickle.dumps(state), 0))


def test_a_journal_that_resumes_exactly_holds_and_a_lost_part_is_named() -> None:
    def clean(folder: Path, steps: int) -> Iterator[int]:
        yield from journalled(folder, "")

    def losing(folder: Path, steps: int) -> Iterator[int]:
        yield from journalled(folder, "late")

    assert check(clean).verdict == "holds"
    assert "late" in first(check(losing))


def of_calls(*, lost: bool) -> Callable[[Path, int], Any]:
    """Return a trainer that calls itself for each step."""

    def further(folder: Path, steps: int, w: Any, velocity: Any, at: int) -> Any:
        if at >= steps:
            return w
        parity.mark(at)
        velocity = 0.7 * velocity + (w - at % 3)
        w = w - 0.05 * velocity
        if at % 6 == 5:
            (folder / "state.pkl").write_bytes(pickle.dumps((w, velocity, at + 1)))
        return further(folder, steps, w, velocity, at + 1)

    def train(folder: Path, steps: int) -> Any:
        w, velocity, at = np.zeros(3), np.zeros(3), 0
        if (file := folder / "state.pkl").exists():
            w, kept, at = pickle.loads(file.read_bytes())
            velocity = velocity if lost else kept
        return further(folder, steps, w, velocity, at)

    return train


def test_a_trainer_that_calls_itself_holds_and_what_it_loses_is_named() -> None:
    assert check(of_calls(lost=False)).verdict == "holds"
    assert "velocity" in first(check(of_calls(lost=True)))


PACKED: list[Callable[[bytes], bytes]] = [
    bz2.compress,
    lzma.compress,
    lambda data: bz2.compress(data) + bz2.compress(b"and more"),
    lambda data: b'{"step": 3, "state": "%s"}' % base64.b64encode(data),
    lambda data: b"step,state\n3,%s\n" % base64.urlsafe_b64encode(zlib.compress(data)),
    lambda data: b"%s\n" % base64.b64encode(bz2.compress(data)),
]


@pytest.mark.parametrize("packed", PACKED)
def test_packed_and_as_letters_pickles_are_compared_by_what_they_hold(
    packed: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    shared = "a name that stands twice"
    held = [[shared, shared, 1.5], [shared, "".join(list(shared)), 1.5], [shared, shared, 1.25]]
    for number, one in enumerate(held):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "state").write_bytes(packed(pickle.dumps(one)))
    first_, same, other = (contents(tmp_path / str(number), [], []) for number in range(3))
    assert (tmp_path / "0" / "state").read_bytes() != (tmp_path / "1" / "state").read_bytes()
    assert first_ == same != other


@pytest.mark.parametrize(
    "text", ["gAStateOfTheArtIsNoPickle", "eJ and more", b"BZh, a word", b"\xfd7zXZ\0 cut", "UEsDBAAAAAAAAAAA"]
)
def test_what_only_begins_so_counts_as_it_is(text: str | bytes, tmp_path: Path) -> None:
    data = text.encode() if isinstance(text, str) else text
    for name, more in (("a", b""), ("b", b"!")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(data + more)
    assert contents(tmp_path / "a", [], []) != contents(tmp_path / "b", [], [])


def with_checksum(folder: Path, data: bytes, kind: str) -> None:
    folder.mkdir()
    if kind == "beside":
        (folder / "s.pkl").write_bytes(data)
        (folder / "s.pkl.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  s.pkl\n")
    elif kind == "in a manifest":
        (folder / "s.pkl").write_bytes(data)
        (folder / "manifest.json").write_text(json.dumps({"s.pkl": {"md5": hashlib.md5(data).hexdigest()}, "n": 1}))
    else:
        name = hashlib.sha1(data).hexdigest()[:12]
        (folder / f"{name}.pkl").write_bytes(data)
        (folder / "latest").write_text(f"{name}.pkl")


@pytest.mark.parametrize("kind", ["beside", "in a manifest", "as a name"])
def test_a_checksum_stands_for_what_its_file_holds(kind: str, tmp_path: Path) -> None:
    shared = "a name that stands twice"
    held = [[shared, shared, 1.5], [shared, "".join(list(shared)), 1.5], [shared, shared, 1.25]]
    for number, one in enumerate(held):
        with_checksum(tmp_path / str(number), pickle.dumps(one), kind)
    first_, same, other = (
        {path: (leaf.kind, leaf.digest) for path, leaf in contents(tmp_path / str(number), [], []).items()}
        for number in range(3)
    )
    assert first_ == same != other


def test_a_text_that_is_no_checksum_of_a_file_counts_as_it_is(tmp_path: Path) -> None:
    for number, letter in enumerate("ab"):
        with_checksum(tmp_path / str(number), pickle.dumps([1]), "beside")
        (tmp_path / str(number) / "commit").write_text(letter * 40)
    first_, other = (contents(tmp_path / str(number), [], []) for number in range(2))
    assert {path.partition(":")[0] for path in first_.keys() ^ other.keys()} == {"commit"}
    wrong = tmp_path / "1" / "s.pkl.sha256"
    wrong.write_text(wrong.read_text().replace("s.pkl", "t.pkl")[::-1])
    assert contents(tmp_path / "1", [], []) != other


def test_dates_and_fractions_have_no_file_digested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[int] = []
    monkeypatch.setattr("parity.checks.running.checksums._sums", lambda data: digested.append(len(data)) or [])
    name = "events.1234567890.20260131"
    (tmp_path / name).write_text("loss 0.12345678 rate 0.1234567e-05 at 20260131123456\n")
    signs_of_checksums(tmp_path, [name], lambda path: None)
    assert not digested
    (tmp_path / name).write_text("sha1 44f4a530fd62\n")
    signs_of_checksums(tmp_path, [name], lambda path: None)
    assert digested
