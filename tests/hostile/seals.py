"""Hostile seals: of something else, of other types, of paths that lead outside; most with a digest that fits."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checkpoints import FILE
from parity.spec import override
from tests.hostile.entry import Entry, Spoil, both
from tests.hostile.runs import NEWEST, SPEC, Sandbox, edit_seal, make_run

Make = Callable[[str], Spoil]

SEAL = r"seal\.json"
BEFORE = Path(__file__).resolve().parents[1] / "fixtures" / "before_2026_11"


def _edit(change: Callable[[dict[str, Any]], Any]) -> Make:
    return lambda side: lambda box: edit_seal(box.newest, change)


def _set(name: str, value: Any) -> Make:
    return _edit(lambda seal: seal.update({name: value}))


def _text(data: bytes) -> Make:
    return lambda side: lambda box: (box.newest / FILE).write_bytes(data) and None


def _changed(change: Callable[[str], str]) -> Make:
    """Return a spoiler that changes the text and lets its digest be."""

    def spoil(box: Sandbox) -> None:
        text = (box.newest / FILE).read_text()
        assert change(text) != text
        (box.newest / FILE).write_text(change(text))

    return lambda side: spoil


def _first(group: str, change: Callable[[str, Any], tuple[str, Any]]) -> Make:
    """Return a spoiler that changes the first name and value of a group."""

    def edit(seal: dict[str, Any]) -> None:
        first, *rest = seal[group].items()
        seal[group] = dict([change(*first), *rest])

    return _edit(edit)


def _file(name: str) -> Make:
    return _first("files", lambda old, value: (name, value))


def _entry(change: Callable[[list[Any]], Any]) -> Make:
    return _first("files", lambda name, value: (name, change(value)))


def _place(change: Callable[[list[Any]], Any]) -> Make:
    """Return a spoiler that changes the place of the first leaf: [file, start, size, digest]."""
    return _first("places", lambda leaf, at: (leaf, [change(at[0])]))


def _swapped(box: Sandbox) -> None:
    """Exchange the seals of the two steps."""
    texts = [(path / FILE).read_text() for path in (box.older, box.newest)]
    for path, text in zip((box.newest, box.older), texts, strict=True):
        (path / FILE).write_text(text)


def _older_seal(box: Sandbox) -> None:
    shutil.copy(box.older / FILE, box.newest / FILE)


def _renamed(box: Sandbox) -> None:
    """Give the older checkpoint the newer one's name."""
    shutil.rmtree(box.newest)
    box.older.rename(box.newest)


def _older_sealed_as_newer(box: Sandbox) -> None:
    shutil.rmtree(box.newest)
    shutil.copytree(box.older, box.newest)
    edit_seal(box.newest, lambda seal: seal.update(step=NEWEST))


def _of_another_run(side: str) -> Spoil:
    """Copy in the checkpoint of a run with another seed, valid as it is."""

    def spoil(box: Sandbox) -> None:
        other = make_run(side, box.outside / "run", override(SPEC, ["seed=7"]))
        shutil.rmtree(box.newest)
        shutil.move(other / "checkpoints" / str(NEWEST), box.newest)

    return spoil


def _hundred_thousand(group: str, name: str, value: Any) -> Make:
    return _edit(lambda seal: seal[group].update({f"{name}{i}": value for i in range(100_000)}))


def _amplified(side: str) -> Spoil:
    """Let 20,000 places cover the whole of a damaged file of 256 MiB: 5 TB to read, were all of them looked at."""

    def spoil(box: Sandbox) -> None:
        size = 256 << 20
        (box.newest / "big").touch()
        with (box.newest / "big").open("r+b") as file:
            file.truncate(size)

        def edit(seal: dict[str, Any]) -> None:
            seal["files"] = dict(sorted([*seal["files"].items(), ("big", [size, "0" * 32])]))
            names = [f"x{i}" for i in range(20_000)]
            seal["leaves"].update(dict.fromkeys(names, "int 1"))
            seal["places"].update({n: [["big", i, size - i, "0" * 32]] for i, n in enumerate(names)})

        edit_seal(box.newest, edit)

    return spoil


def _leaves(change: Callable[[dict[str, str]], Any]) -> Make:
    return _edit(lambda seal: change(seal["leaves"]))


WEIGHT = "model.params.layers.0.weight"


def _weight_said_to_be(kind: str) -> Make:
    """Give a leaf another type and digest, in the schema of the seal, and no place that would contradict it."""

    def edit(seal: dict[str, Any]) -> None:
        blocks = "" if seal["schema"] == "parity.seal/1" else "blocks "
        seal["leaves"][WEIGHT] = f"{kind} {blocks}{'0' * 32}"
        seal["places"].pop(WEIGHT)

    return _edit(edit)


INVALID: dict[str, Make] = {
    "empty": _text(b""),
    "list": _text(b"[]"),
    "nothing-in-it": _text(b"{}"),
    "deep": _text(b"[" * 100_000),
    "deep-objects": _text(b'{"a":' * 100_000),
    "digits": _text(b'{"step": ' + b"9" * 5_000 + b"}"),
    "not-utf8": _text(b"\xff\xfe{}"),
    "byte-order-mark": _text(b"\xef\xbb\xbf{}"),
    "nan": _text(b'{"step": NaN}'),
    "zeros": _text(bytes(4096)),
    "48-megabytes": _text(b"[" + b"0," * (24 << 20) + b"0]"),
    "name-twice": _changed(lambda text: text.replace('"step":', '"step": 1,\n "step":', 1)),
    "spelled-otherwise": _changed(lambda text: text.replace('"side": ', '"side":  ', 1)),
    "newline-behind-it": _changed(lambda text: text + "\n"),
    "order-of-names": _changed(lambda text: "{" + text[text.index('"step"') - 2 :]),
    "digest-not-its-own": _changed(lambda text: text.replace('"metric"', '"metriC"', 1)),
    "schema-of-the-future": _set("schema", "parity.seal/999"),
    "schema-a-list": _set("schema", ["parity.seal/1"]),
    "algorithm-unknown": _set("algorithm", "crc32"),
    "name-left-over": _set("more", 1),
    "step-missing": _edit(lambda seal: seal.pop("step") and None),
    "step-true": _set("step", True),
    "step-negative": _set("step", -4),
    "step-a-float": _set("step", 4.0),
    "step-a-text": _set("step", "4"),
    "step-of-another-checkpoint": _set("step", 2),
    "step-of-4000-digits": _set("step", 10**4000),
    "metric-an-integer": _set("metric", 1),
    "metric-a-text": _set("metric", "much"),
    "metric-a-list": _set("metric", []),
    "time-a-text": _set("saved_at", "now"),
    "time-an-integer": _set("saved_at", 5),
    "side-a-number": _set("side", 5),
    "hash-null": _set("spec_hash", None),
    "versions-a-list": _set("versions", ["torch"]),
    "versions-of-numbers": _set("versions", {"torch": 2}),
    "files-a-list": _set("files", [["state.pt", 5, "0" * 32]]),
    "files-none": _set("files", {}),
    "files-100000": _hundred_thousand("files", "more", [1, "0" * 32]),
    "leaves-a-list": _set("leaves", []),
    "leaves-of-numbers": _leaves(lambda leaves: leaves.update({WEIGHT: 5})),
    "places-a-list": _set("places", []),
    "places-of-no-leaf": _set("places", {"no.such.leaf": []}),
    "file-outside": _file("../2/seal.json"),
    "file-deep-outside": _file("a/../../../../outside"),
    "file-absolute": _file("/etc/passwd"),
    "file-in-a-roundabout-way": _file("./x//y"),
    "file-the-seal-itself": _file("seal.json"),
    "file-dot": _file("."),
    "file-empty": _file(""),
    "file-with-a-zero": _file("a\0b"),
    "file-with-a-lone-surrogate": _file("a\ud800b"),
    "file-with-a-newline": _file("a\nb"),
    "file-of-5000-letters": _file("a" * 5000),
    "file-of-another-case": _file("STATE.PT"),
    "size-negative": _entry(lambda v: [-1, v[1]]),
    "size-a-float": _entry(lambda v: [float(v[0]), v[1]]),
    "size-true": _entry(lambda v: [True, v[1]]),
    "size-a-text": _entry(lambda v: [str(v[0]), v[1]]),
    "size-of-an-exabyte": _entry(lambda v: [1 << 60, v[1]]),
    "size-beyond-any-file": _entry(lambda v: [1 << 70, v[1]]),
    "size-off-by-one": _entry(lambda v: [v[0] + 1, v[1]]),
    "digest-too-short": _entry(lambda v: [v[0], v[1][:-1]]),
    "digest-in-capitals": _entry(lambda v: [v[0], v[1].upper()]),
    "digest-of-another-file": _entry(lambda v: [v[0], "0" * 32]),
    "digest-null": _entry(lambda v: [v[0], None]),
    "entry-too-long": _entry(lambda v: [*v, 1]),
    "entry-null": _entry(lambda v: None),
    "entry-a-text-of-two": _entry(lambda v: "ab"),
    "place-outside": _place(lambda p: ["../2/seal.json", *p[1:]]),
    "place-absolute": _place(lambda p: ["/etc/passwd", *p[1:]]),
    "place-in-no-file-of-it": _place(lambda p: ["nothing", *p[1:]]),
    "place-negative": _place(lambda p: [p[0], -1, *p[2:]]),
    "place-a-float": _place(lambda p: [p[0], 0.5, *p[2:]]),
    "place-true": _place(lambda p: [p[0], p[1], True, p[3]]),
    "place-null": _place(lambda p: None),
    "place-too-short": _place(lambda p: p[:3]),
    "place-without-digest-of-a-part": _place(lambda p: [p[0], p[1], p[2] - 1, None]),
    "place-without-digest-beyond-the-file": _place(lambda p: [p[0], p[1], p[2] << 40, None]),
}
"""Name to a seal that is none, or not this checkpoint's; the seal is blamed, or the file that it misnames."""

VALID: dict[str, tuple[str, Make]] = {
    "of-another-run": ("another run", _of_another_run),
    "of-the-older-state-for-the-newer-step": (r"counters\.step", lambda side: _older_sealed_as_newer),
    "without-leaves": ("model", _edit(lambda seal: seal.update(leaves={}, places={}))),
    "with-a-leaf-left-over": ("no.such.leaf", _leaves(lambda leaves: leaves.update({"no.such.leaf": "int 1"}))),
    "with-a-leaf-missing": ("best", _leaves(lambda leaves: leaves.pop("best") and None)),
    "with-a-leaf-of-another-digest": (WEIGHT, _weight_said_to_be("float32[4,64]")),
    "with-a-leaf-of-another-type": (WEIGHT, _weight_said_to_be("int8[1]")),
}
"""Name to what must be named, of seals that are valid for files that are not what they say."""

WITHOUT_SPACE = _leaves(lambda leaves: leaves.update({WEIGHT: "nospace"}))


def _blamed(names: str) -> str:
    return rf"{SEAL}|seal is of|{names}"


def _in_schema_1(entry: Entry) -> Entry:
    """Return the entry for a run whose seals have schema 1: of the same spec, written by an earlier version."""

    def spoil(box: Sandbox) -> None:
        shutil.rmtree(box.run / "checkpoints")
        shutil.copytree(BEFORE / f"{entry.side}-float16" / "checkpoints", box.run / "checkpoints")
        entry.spoil(box)

    return replace(entry, id=f"{entry.id}-schema-1", spoil=spoil)


_BOTH = [
    *(
        entry
        for name, make in INVALID.items()
        for entry in both(f"seal-{name}", "seal", _blamed("sealed|not in the seal|aaaa|more[0-9]+ is missing"), make)
    ),
    *both("seal-of-the-older-step", "seal", _blamed("bytes"), lambda side: _older_seal),
    *both("seal-swapped-between-steps", "seal", _blamed("bytes"), lambda side: _swapped),
    *both("seal-of-a-renamed-checkpoint", "seal", _blamed("bytes"), lambda side: _renamed),
    *both("seal-places-amplified", "seal", _blamed("big"), _amplified),
    *both("seal-with-a-leaf-of-no-type", "seal", _blamed(WEIGHT), WITHOUT_SPACE),
    *(entry for name, (names, make) in VALID.items() for entry in both(f"seal-{name}", "valid", names, make)),
]

OF_A_SCHEMA = ("seal-place", "seal-with-a-leaf", "seal-empty")
"""Beginnings of the names of entries on what the schemas do not share, and of one that no reader gets into."""

ENTRIES = [
    *_BOTH,
    *(_in_schema_1(entry) for entry in _BOTH if entry.id.startswith(OF_A_SCHEMA) or entry.outcome == "valid"),
]
