"""A seal says what a checkpoint is made of, in one spelling only, and a checkpoint gets its name behind it."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import FILE, ByteRange, Seal, commit, examine, read_seal, seal, seal_text
from parity.errors import CheckpointError, SaveError, UnsealedError
from parity.storage import FileDigest, digest_files
from tests.parity.recorded import record_calls
from tests.parity.test_digest import KINDS, make

DIGEST = "0123456789abcdef" * 2
FILES = {"state.pt": b"weights", "größe/übung 1.json": b"{}", "empty": b""}
SEAL = Seal(
    step=10,
    metric=0.75,
    saved_at=1700000000.25,
    side="torch",
    spec_hash="aa" * 16,
    versions={"numpy": "2.4.0", "größe": "1"},
    leaves={
        "model.params.weight": f"float32[2,3] blocks {DIGEST}",
        "model.params.bias": f"uint8[3] blocks {DIGEST}",
        "counters.step": "int 10",
        "épöche": 'str "ü"',
    },
    places={
        "model.params.weight": (ByteRange("state.pt", 0, 4, DIGEST), ByteRange("größe/übung 1.json", 1, 1, DIGEST)),
        "model.params.bias": (ByteRange("größe/übung 1.json", 0, 0, DIGEST), ByteRange("state.pt", 4, 3)),
    },
)
SEAL_1 = replace(
    SEAL,
    leaves={leaf: text.replace("blocks ", "") for leaf, text in SEAL.leaves.items()},
    places={"model.params.weight": SEAL.places["model.params.weight"]},
    schema=1,
)
each_schema = pytest.mark.parametrize("known", [SEAL_1, SEAL], ids=["schema 1", "schema 2"])


def draft(root: Path) -> Path:
    path = root / ".draft-10-1"
    for name, data in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


@pytest.fixture(params=[SEAL_1, SEAL], ids=["schema 1", "schema 2"])
def sealed(tmp_path: Path, request: Any) -> Path:
    commit(draft(tmp_path), tmp_path / "10", request.param)
    return tmp_path / "10"


def written(path: Path, text: str | bytes) -> Path:
    """Put a text in the place of the seal of a checkpoint."""
    path.mkdir(exist_ok=True)
    (path / FILE).write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@each_schema
@pytest.mark.parametrize("metric", [None, 0.5, -0.0, 5e-324, 0.1 + 0.2, math.inf, -math.inf, math.nan])
def test_a_seal_is_read_back_as_it_was_written(metric: float | None, known: Seal, tmp_path: Path) -> None:
    said = commit(draft(tmp_path), tmp_path / "10", replace(known, metric=metric))
    found = read_seal(tmp_path / "10")
    assert set(found.files) == set(FILES)
    assert found.files == said.files == digest_files(tmp_path / "10", FILES)
    assert seal_text(found) == seal_text(said)
    assert (found.metric is None) == (metric is None)
    if metric is not None and found.metric is not None:
        assert (math.isnan(metric), str(metric)) == (math.isnan(found.metric), str(found.metric))
    assert replace(found, metric=None, files={}) == replace(known, metric=None)


def test_a_seal_is_valid_json_for_any_reader(sealed: Path) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    commit(draft(sealed.parent), sealed.parent / "11", replace(SEAL, step=11, metric=math.nan))
    value = json.loads((sealed.parent / "11" / FILE).read_text(encoding="ascii"), parse_constant=refuse)
    assert value["metric"] == "nan"
    assert value["files"]["state.pt"][0] == len(FILES["state.pt"])


@pytest.mark.takes_seconds
def test_every_changed_byte_is_refused(sealed: Path) -> None:
    good = (sealed / FILE).read_bytes()
    for place in range(len(good)):
        for change in (1, 0x20, 0x80):
            bad = bytearray(good)
            bad[place] ^= change
            with pytest.raises(CheckpointError, match=r"seal\.json "):
                read_seal(written(sealed, bytes(bad)))
    assert read_seal(written(sealed, good)).step == 10


@pytest.mark.takes_seconds
def test_every_truncation_and_every_addition_is_refused(sealed: Path) -> None:
    good = (sealed / FILE).read_bytes()
    for bad in (*(good[:n] for n in range(len(good))), good + b"\n", good + b" ", b"\xef\xbb\xbf" + good, good * 2):
        with pytest.raises(CheckpointError, match=r"seal\.json "):
            read_seal(written(sealed, bad))


def reordered(value: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(value.items()))


SPELLINGS = {
    "without line breaks": lambda text: json.dumps(json.loads(text)) + "\n",
    "indented otherwise": lambda text: json.dumps(json.loads(text), indent=2) + "\n",
    "a space more": lambda text: text.replace('": ', '":  ', 1),
    "another order of names": lambda text: json.dumps(reordered(json.loads(text)), indent=1) + "\n",
    "another order of files": lambda text: (
        json.dumps({**json.loads(text), "files": reordered(json.loads(text)["files"])}, indent=1) + "\n"
    ),
    "letters instead of escapes": lambda text: json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n",
    "another form of a number": lambda text: text.replace("0.75", "7.5e-1"),
    "a name twice": lambda text: text.replace(' "step": 10,', ' "step": 10,\n "step": 10,'),
    "a name more": lambda text: text.replace(' "step": 10,', ' "step": 10,\n "comment": "",'),
    "no line break at the end": lambda text: text.rstrip("\n"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_spelling_of_the_same_content_is_refused(spelling: str, sealed: Path) -> None:
    good = (sealed / FILE).read_text()
    bad = SPELLINGS[spelling](good)
    assert bad != good
    with pytest.raises(CheckpointError, match=r"seal\.json (was changed|cannot be read: a name occurs twice)"):
        read_seal(written(sealed, bad))


@pytest.mark.parametrize(
    "name",
    [
        "../10/state.pt",
        "/etc/passwd",
        "a/../../b",
        "..",
        ".",
        "",
        "./state.pt",
        "a//b",
        "a/",
        "a\0b",
        FILE,
        "//host/share",
    ],
)
@pytest.mark.parametrize("where", ["files", "places"])
def test_a_path_that_is_not_plainly_inside_is_refused(name: str, where: str, tmp_path: Path) -> None:
    """The seal is written as ours would be, its own digest included."""
    files = {name: FileDigest(1, DIGEST)}
    bad = replace(SEAL, files=files, places={})
    if where == "places":
        places = {"counters.step": (ByteRange(name, 0, 1, DIGEST),)}
        bad = replace(SEAL, files={"a": FileDigest(1, DIGEST)}, places=places)
    with pytest.raises(CheckpointError, match="is no path inside a checkpoint"):
        read_seal(written(tmp_path / "10", seal_text(bad)))


HUGE: Any = 1 << 62
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a step that is a bool": ({"step": True}, "step: expected a size, got True"),
    "a step below 0": ({"step": -1}, "step: expected a size, got -1"),
    "a step that is a float": ({"step": 10.0}, r"step: expected a size, got 10\.0"),
    "a step beyond all sizes": ({"step": HUGE}, "step: expected a size, got 4611686018427387904"),
    "a metric that is an integer": ({"metric": 1}, "metric: expected a float, got 1"),
    "a metric that is a text": ({"metric": "0.5"}, "metric: expected a float, got '0.5'"),
    "a time that is an integer": ({"saved_at": 5}, "saved_at: expected a time, got 5"),
    "a side that is none": ({"side": None}, "side: expected a text, got None"),
    "a version that is a number": ({"versions": {"numpy": 2}}, "numpy: expected a text, got 2"),
    "a leaf that is a list": ({"leaves": {"a": ["int 1"]}, "places": {}}, "a: expected a text, got "),
    "a size below 0": ({"files": {"state.pt": FileDigest(-1, DIGEST)}}, r"state\.pt: expected a size, got -1"),
    "a digest in capitals": ({"files": {"state.pt": FileDigest(1, DIGEST.upper())}}, r"state\.pt: expected a digest"),
    "a digest too short": ({"files": {"state.pt": FileDigest(1, DIGEST[:31])}}, r"state\.pt: expected a digest"),
    "a digest with a line break": (
        {"files": {"state.pt": FileDigest(1, DIGEST + "\n")}},
        r"state\.pt: expected a digest",
    ),
    "a place of an unknown leaf": (
        {"files": {"f": FileDigest(1, DIGEST)}, "places": {"nobody": (ByteRange("f", 0, 1, DIGEST),)}},
        "the place of 'nobody' is not one of its own",
    ),
    "a place in an unknown file": (
        {"files": {}, "places": {"counters.step": (ByteRange("f", 0, 1, DIGEST),)}},
        r"the place of 'counters\.step' is not one of its own",
    ),
    "a place that begins below 0": (
        {"files": {"f": FileDigest(1, DIGEST)}, "places": {"counters.step": (ByteRange("f", -1, 1, DIGEST),)}},
        r"counters\.step: expected a size, got -1",
    ),
}


@each_schema
@pytest.mark.parametrize("case", BAD)
def test_a_value_of_the_wrong_kind_is_refused_and_named(case: str, known: Seal, tmp_path: Path) -> None:
    change, message = BAD[case]
    with pytest.raises(CheckpointError, match=rf"seal\.json is not a seal: .*{message}"):
        read_seal(written(tmp_path / "10", seal_text(replace(known, **{"places": {}, **change}))))


NO_DIGEST: dict[str, tuple[str, int]] = {
    "a leaf that is no array": ("int 10", 8),
    "a text of schema 1": (f"uint8[6] {DIGEST}", 6),
    "a text that is none": ("uint8[6] blocks", 6),
    "an order that is none of its axes": (f"uint8[2,3]@1,1 blocks {DIGEST}", 6),
    "too few bytes": (f"uint8[7] blocks {DIGEST}", 6),
    "bytes that are no elements": (f"float32[4] blocks {DIGEST}", 6),
    "elements larger than any": (f"uint8[] blocks {DIGEST}", 65),
    "bytes of an array without elements": (f"uint8[3,0] blocks {DIGEST}", 1),
}


@pytest.mark.parametrize("case", NO_DIGEST)
def test_a_place_without_a_digest_must_hold_all_of_an_array(case: str, tmp_path: Path) -> None:
    text, size = NO_DIGEST[case]
    bad = replace(
        SEAL, files={"f": FileDigest(100, DIGEST)}, leaves={"w": text}, places={"w": (ByteRange("f", 0, size),)}
    )
    with pytest.raises(CheckpointError, match="the place of 'w' has no digest and does not hold"):
        read_seal(written(tmp_path / "10", seal_text(bad)))


def test_in_schema_1_every_place_has_a_digest(tmp_path: Path) -> None:
    leaves, places = {"w": f"uint8[6] blocks {DIGEST}"}, {"w": (ByteRange("f", 0, 6),)}
    bad = replace(SEAL_1, files={"f": FileDigest(6, DIGEST)}, leaves=leaves, places=places)
    with pytest.raises(CheckpointError, match="w: expected a digest, got None"):
        read_seal(written(tmp_path / "10", seal_text(bad)))
    assert read_seal(written(tmp_path / "10", seal_text(replace(bad, schema=2)))).places == places


@pytest.mark.parametrize(("digest", "refused"), [(None, True), (DIGEST, False)])
def test_leaves_share_a_range_only_if_it_is_read_once_for_all(digest: Any, refused: bool, tmp_path: Path) -> None:
    leaves = dict.fromkeys(("a", "b"), f"uint8[6] blocks {DIGEST}")
    shared = replace(
        SEAL,
        files={"f": FileDigest(6, DIGEST)},
        leaves=leaves,
        places={name: (ByteRange("f", 0, 6, digest),) for name in leaves},
    )
    path = written(tmp_path / "10", seal_text(shared))
    if refused:
        with pytest.raises(CheckpointError, match="its places cover 12 bytes of 'f', which has 6"):
            read_seal(path)
    else:
        assert read_seal(path).places == shared.places


def test_a_seal_of_an_unknown_schema_is_refused_and_names_those_that_are_read(tmp_path: Path) -> None:
    text = seal_text(replace(SEAL, schema=3))  # type: ignore[arg-type]
    with pytest.raises(
        CheckpointError, match=r"'parity\.seal/3'.* this version reads parity\.seal/1 and parity\.seal/2"
    ):
        read_seal(written(tmp_path / "10", text))


@pytest.mark.parametrize("kind", [*KINDS, "directory"])
def test_a_seal_that_is_no_plain_file_is_refused_and_not_taken_for_none(kind: str, sealed: Path) -> None:
    """Taken for none, the checkpoint would count as unsealed: readable unverified."""
    (sealed / FILE).unlink()
    if kind == "directory":
        (sealed / FILE).mkdir()
    else:
        make(kind, sealed / FILE)
    with pytest.raises(CheckpointError, match=r"seal\.json cannot be read") as caught:
        examine(sealed)
    assert not isinstance(caught.value, UnsealedError)


def test_a_checkpoint_without_a_seal_is_reported_as_such(sealed: Path) -> None:
    (sealed / FILE).unlink()
    with pytest.raises(UnsealedError, match=r"10 has no seal: seal\.json is missing, and nothing"):
        examine(sealed)


def test_a_sealed_checkpoint_passes(sealed: Path) -> None:
    assert examine(sealed) == read_seal(sealed)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda path: (path / "state.pt").unlink(), r"state\.pt is missing"),
        (lambda path: (path / "empty").unlink(), "empty is missing"),
        (lambda path: (path / "state.pt").write_bytes(b"short"), r"state\.pt has 5 bytes, was sealed with 7"),
        (lambda path: (path / "empty").write_bytes(b"x"), "empty has 1 bytes, was sealed with 0"),
        (lambda path: (path / "extra").touch(), "extra is not in the seal"),
        (lambda path: (path / "größe" / ".extra").touch(), r"größe/\.extra is not in the seal"),
        (lambda path: (path / "state.pt").rename(path / "state.pt~"), r"state\.pt is missing; state\.pt~ is not in"),
    ],
)
def test_a_missing_a_left_over_and_a_resized_file_are_named(act: Any, message: str, sealed: Path) -> None:
    act(sealed)
    with pytest.raises(CheckpointError, match=f"^{message}"):
        examine(sealed)


def test_small_files_are_read_by_every_look_and_large_ones_by_a_restore(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small ones say how the others are read, and a framework opens them before anything is restored."""
    (sealed / "state.pt").write_bytes(b"weightz")
    with pytest.raises(CheckpointError, match=r"^state\.pt does not hold the bytes that were sealed$"):
        examine(sealed)
    monkeypatch.setattr(seal, "SMALL", len(FILES["state.pt"]) - 1)
    assert examine(sealed).step == 10
    (sealed / "größe" / "übung 1.json").write_bytes(b"[]")
    with pytest.raises(CheckpointError, match=r"^größe/übung 1\.json does not hold"):
        examine(sealed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_became_something_else_does_not_count(kind: str, sealed: Path) -> None:
    (sealed / "state.pt").unlink()
    make(kind, sealed / "state.pt")
    with pytest.raises(CheckpointError, match=r"state\.pt is a link or no regular file"):
        examine(sealed)


@pytest.mark.parametrize("name", ["11", "010", "10.0"])
def test_a_checkpoint_under_another_name_does_not_count(name: str, sealed: Path) -> None:
    with pytest.raises(CheckpointError, match="its seal is of step 10"):
        examine(sealed.rename(sealed.with_name(name)))


def test_the_seal_is_written_behind_every_file_and_the_name_given_behind_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = draft(tmp_path)
    seen: list[bool] = []
    digests = seal.digest_files
    monkeypatch.setattr(seal, "digest_files", lambda *args: (seen.append((path / FILE).exists()), digests(*args))[1])
    calls = record_calls(monkeypatch, tmp_path)
    commit(path, tmp_path / "10", SEAL)
    assert seen == [False], "a file is digested before the seal is there"
    name = path.name
    assert calls[0] == f"fsync {name}/{FILE}"
    synced, (renamed, *behind) = calls[1:-2], calls[-2:]
    assert set(synced) == {f"fsync {name}/{file}" for file in (*FILES, FILE, "größe")} | {f"fsync {name}"}
    assert synced[-1] == f"fsync {name}"
    assert renamed == f"rename {name} -> 10"
    assert behind == ["fsync ."]


def test_a_failure_at_any_call_leaves_no_checkpoint_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the rename; behind it only the directory is synced, and the checkpoint is there, whole."""
    path = draft(tmp_path)
    with monkeypatch.context() as patch:
        calls = record_calls(patch, tmp_path)
        commit(path, tmp_path / "0", replace(SEAL, step=0))
    for number in range(len(calls)):
        path = draft(tmp_path)
        final = tmp_path / str(number + 1)
        with monkeypatch.context() as patch:
            count = iter(range(len(calls)))

            def failing(real: Any, count: Any = count, number: int = number) -> Any:
                def call(*args: Any) -> Any:
                    if next(count) == number:
                        raise OSError("the disk failed")
                    return real(*args)

                return call

            patch.setattr(os, "fsync", failing(os.fsync))
            patch.setattr(os, "rename", failing(os.rename))
            with pytest.raises((OSError, SaveError), match="the disk failed") as caught:
                commit(path, final, replace(SEAL, step=number + 1))
        assert final.exists() == (number == len(calls) - 1) == isinstance(caught.value, SaveError)
        if final.exists():
            assert examine(final).step == number + 1
            assert str(caught.value).startswith(f"step {number + 1} is saved, but work after the save failed: ")
        else:
            assert path.exists(), "a leftover, for the next start to clean"
            (path / FILE).unlink(missing_ok=True)


def test_a_digest_that_is_known_is_not_computed_again(tmp_path: Path) -> None:
    """What was digested on its way to the disk proves the disk; digesting what came back would prove nothing."""
    known = {"state.pt": FileDigest(len(FILES["state.pt"]), DIGEST)}
    said = commit(draft(tmp_path), tmp_path / "10", replace(SEAL, files=known))
    assert said.files["state.pt"] == known["state.pt"]
    assert set(said.files) == set(FILES)


def test_a_draft_that_has_a_seal_is_not_sealed_again(tmp_path: Path) -> None:
    path = draft(tmp_path)
    (path / FILE).write_text("an older one")
    with pytest.raises(FileExistsError, match=r"seal\.json"):
        commit(path, tmp_path / "10", SEAL)
    assert not (tmp_path / "10").exists()


def test_a_checkpoint_that_is_there_is_not_replaced(sealed: Path) -> None:
    before = (sealed / FILE).read_bytes()
    with pytest.raises(OSError, match="Directory not empty"):
        commit(draft(sealed.parent), sealed, replace(SEAL, metric=0.1))
    assert (sealed / FILE).read_bytes() == before
    assert examine(sealed).metric == 0.75


def test_a_draft_with_a_link_is_not_sealed(tmp_path: Path) -> None:
    path = draft(tmp_path)
    (path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="link is a link or no regular file"):
        commit(path, tmp_path / "10", SEAL)
    assert not (tmp_path / "10").exists()
