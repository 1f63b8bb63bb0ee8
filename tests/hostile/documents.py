"""Hostile JSON beside the arrays: the scalars of both sides, and the documents that Orbax reads; sealed again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.entry import Entry, Outcome, Spoil, both
from tests.hostile.runs import META, edit_json

DEEP = b"[" * 100_000
DIGITS = b"9" * 5_000


def _text(data: bytes, file: str = "") -> Callable[[str], Spoil]:
    return lambda side: lambda box: _made(box.newest / (file or META[side])).write_bytes(data) and None


def _made(path: Path) -> Path:
    """Return a path whose folder is there: of several processes Orbax writes documents that one alone does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _json(change: Callable[[Any], Any]) -> Callable[[str], Spoil]:
    return lambda side: lambda box: edit_json(box.newest / META[side], change)


def _scalar(name: str, value: Any) -> Callable[[str], Spoil]:
    return _json(lambda document: document["scalars"].update({name: value}))


def _sparse(file: str, size: int) -> Callable[[str], Spoil]:
    def spoil(side: str) -> Spoil:
        return lambda box: _grow(box.newest / (file or META[side]), size)

    return spoil


def _grow(path: Path, size: int) -> None:
    with _made(path).open("ab") as file:
        file.truncate(size)


def _wide(side: str) -> Spoil:
    """Write 48 MiB of small objects: a hundred times that as Python objects, if they are all kept."""
    return lambda box: (
        (box.newest / META[side]).write_bytes(b'{"scalars":{"x":[' + b"0," * (24 << 20) + b"0]}}") and None
    )


def _without_best(document: Any) -> None:
    del document["scalars"]["best"]


def _position(**values: Any) -> Callable[[str], Spoil]:
    return _json(lambda document: document["scalars"]["data.position"].update(values))


FILE = r"meta\.json|meta/metadata"
SPEC_TEXTS = {"number": 7, "deep": "a = " + "[" * 100_000, "digits": "a = " + "9" * 5_000, "garbage": "\0"}

SCALARS: dict[str, tuple[str, Callable[[str], Spoil]]] = {
    "empty": (FILE, _text(b"")),
    "list": (FILE, _text(b"[]")),
    "number": (FILE, _text(b"5")),
    "null": (FILE, _text(b"null")),
    "half": (FILE, _text(b'{"scalars": {')),
    "deep": (FILE, _text(DEEP)),
    "deep-objects": (FILE, _text(b'{"a":' * 100_000)),
    "digits": (FILE, _text(b'{"scalars": ' + DIGITS + b"}")),
    "not-utf8": (FILE, _text(b'{"scalars": "\xff\xfe"}')),
    "utf16": (FILE, _text('{"scalars": {}}'.encode("utf-16"))),
    "byte-order-mark": (FILE, _text(b'\xef\xbb\xbf{"scalars": {}}')),
    "nan": (FILE, _text(b'{"scalars": NaN}')),
    "infinity": (FILE, _text(b'{"scalars": {"a": -Infinity}}')),
    "name-twice": (FILE, _text(b'{"scalars": {}, "scalars": {}}')),
    "name-twice-inside": (FILE, _text(b'{"scalars": {"counters.step": 4, "counters.step": 2}}')),
    "two-documents": (FILE, _text(b"{}{}")),
    "zeros": (FILE, _text(bytes(1000))),
    "sparse-of-a-gigabyte": (FILE, _sparse("", 1 << 30)),
    "scalars-missing": (FILE, _json(lambda d: {"step": d["step"]})),
    "scalars-a-list": (FILE, _json(lambda d: d | {"scalars": [1, 2]})),
    "scalars-pairs": (FILE, _json(lambda d: d | {"scalars": [["a", 1]]})),
    "scalars-null": (FILE, _json(lambda d: d | {"scalars": None})),
    "scalars-none": ("is missing|missing: was", _json(lambda d: d | {"scalars": {}})),
    "scalar-left-over": ("more", _scalar("more", 1)),
    "scalar-missing": ("best", _json(_without_best)),
    "hash-of-another-run": (r"config\.hash", _scalar("config.hash", "0" * 32)),
    "hash-a-number": (r"config\.hash", _scalar("config.hash", 0)),
    "seed-of-another-run": (r"rng\.init", _scalar("rng.init", 77)),
    "seed-a-list": (r"rng\.data", _scalar("rng.data", [0])),
    "dropout-of-another-generator": (r"rng\.dropout", _scalar("rng.dropout", {"generator": "native", "seed": 0})),
    "step-of-another-time": (r"counters\.step", _scalar("counters.step", 2)),
    "step-negative": (r"counters\.step", _scalar("counters.step", -4)),
    "step-true": (r"counters\.step", _scalar("counters.step", True)),
    "step-a-float": (r"counters\.step", _scalar("counters.step", 4.0)),
    "step-a-text": (r"counters\.step", _scalar("counters.step", "4")),
    "step-of-4000-digits": (r"counters\.step", _scalar("counters.step", 10**4000)),
    "step-null": (r"counters\.step", _scalar("counters.step", None)),
    "updates-of-a-float": (r"counters\.updates", _scalar("counters.updates", 1e300)),
    "epoch-a-list": (r"counters\.epoch", _scalar("counters.epoch", [])),
    "skips-negative": (r"counters\.skips_in_row", _scalar("counters.skips_in_row", -1)),
    "schedule-of-another-time": (r"schedule\.step", _scalar("schedule.step", 7)),
    "schedule-of-400-digits": (r"schedule\.step", _scalar("schedule.step", 10**400)),
    "schedule-negative": (r"schedule\.step", _scalar("schedule.step", -1)),
    "best-a-list": ("best", _scalar("best", [])),
    "best-false": ("best", _scalar("best", False)),
    "best-empty": ("best", _scalar("best", {})),
    "best-a-text": ("best", _scalar("best", "x" * 100_000)),
    "best-of-400-digits": ("best", _scalar("best", {"metric": 10**400, "step": 2})),
    "best-metric-a-text": ("best", _scalar("best", {"metric": "much", "step": 2})),
    "best-step-a-float": ("best", _scalar("best", {"metric": 0.5, "step": 1e308})),
    "best-step-negative": ("best", _scalar("best", {"metric": 0.5, "step": -2})),
    "best-left-over": ("best", _scalar("best", {"metric": 0.5, "step": 2, "more": 1})),
    "position-a-text": (r"data\.position", _scalar("data.position", "start")),
    "position-null": (r"data\.position", _scalar("data.position", None)),
    "position-a-list": (r"data\.position", _scalar("data.position", [0, 4])),
    "position-empty": (r"data\.position", _scalar("data.position", {})),
    "position-negative": (r"data\.position", _position(epoch=-1)),
    "position-beyond-the-epoch": (r"data\.position", _position(batch=10**6)),
    "position-of-another-batch-size": (r"data\.position", _position(batch_size=32)),
    "position-true": (r"data\.position", _position(epoch=False)),
    "position-of-floats": (r"data\.position", _position(batch=4.0)),
    "position-of-lists": (r"data\.position", _position(epoch=["x"] * 1000)),
    "position-of-another-time": (r"data\.position", _position(batch=7, samples=112)),
    "position-of-4000-digits": (r"data\.position", _position(epoch=10**4000)),
    **{f"spec-{name}": (r"config\.spec", _scalar("config.spec", text)) for name, text in SPEC_TEXTS.items()},
}
"""Name to what the message must name, and how the scalars are spoiled."""

WORDS = {
    "empty": b"",
    "garbage": b"\xff\xfe" * 50,
    "deep": DEEP,
    "digits": b'{"tree_metadata": ' + DIGITS + b"}",
    "number": b"1",
    "list": b"[]",
    "nothing-in-it": b"{}",
}

ORBAX = ("params/_METADATA", "params/_sharding", "params/array_metadatas/process_0")

UNREAD = "_CHECKPOINT_METADATA"
"""Document of the manager, which a restore asks nothing: whatever it holds is harmless."""


def _orbax(file: str, change: Callable[[Any], Any]) -> Spoil:
    return lambda box: edit_json(box.newest / file, change)


def _values(**settings: Any) -> Callable[[Any], Any]:
    def change(document: Any) -> None:
        for entry in document["tree_metadata"].values():
            entry["value_metadata"].update(settings)

    return change


def _renamed(document: Any) -> None:
    """Let the first array have a name that leads outside."""
    name, entry = document["tree_metadata"].popitem()
    entry["key_metadata"][0]["key"] = "../../../outside"
    document["tree_metadata"][name.replace("layers", "../../../outside")] = entry


TREE: dict[str, Callable[[Any], Any]] = {
    "without-ocdbt": lambda d: d.update(use_ocdbt=False),
    "with-zarr3": lambda d: d.update(use_zarr3=True),
    "of-texts": _values(value_type="string"),
    "of-scalars": _values(value_type="scalar"),
    "of-an-unknown-type": _values(value_type="os.system"),
    "skipped": _values(skip_deserialize=True),
    "named-outside": _renamed,
    "empty": lambda d: d.update(tree_metadata={}),
    "a-list": lambda d: d.update(tree_metadata=[1]),
    "key-types": lambda d: [e["key_metadata"][0].update(key_type=99) for e in d["tree_metadata"].values()] and None,
}

SILENT = ("params/array_metadatas/process_0-nothing-in-it", "params/_sharding-nothing-in-it")
"""No array of ours has more to say than its .zarray does, so a document without any says the same."""


def _document(file: str, name: str) -> Entry:
    outcome: Outcome = "harmless" if file == UNREAD or f"{file}-{name}" in SILENT else "refused"
    return Entry(f"orbax-{file}-{name}", "jax", outcome, file.split("/")[-1], _text(WORDS[name], file)("jax"))


ENTRIES = [
    *(entry for name, (names, make) in SCALARS.items() for entry in both(f"scalars-{name}", "refused", names, make)),
    *both("scalars-of-48-megabytes", "refused", FILE, _wide),
    *(_document(file, name) for file in (*ORBAX, UNREAD) for name in WORDS),
    *(Entry(f"orbax-{file}-sparse", "jax", "refused", file, _sparse(file, 1 << 30)("jax")) for file in ORBAX),
    *(
        Entry(f"orbax-tree-{name}", "jax", "refused", "params", _orbax("params/_METADATA", change))
        for name, change in TREE.items()
    ),
    Entry(
        "orbax-tree-of-a-petabyte", "jax", "harmless", "", _orbax("params/_METADATA", _values(write_shape=[1 << 50]))
    ),
]
