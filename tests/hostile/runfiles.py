"""Files of the run beside its checkpoints, which every start reads: records, pointers, the spec, the lock."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.entry import Entry, Spoil
from tests.hostile.runs import NEWEST, OLDER, Sandbox

DEEP, DIGITS = b"[" * 100_000, b"9" * 5_000


def _text(file: str, data: bytes) -> Spoil:
    return lambda box: (box.run / file).write_bytes(data) and None


def _line(file: str, data: bytes) -> Spoil:
    """Return a spoiler that adds a whole line."""

    def spoil(box: Sandbox) -> None:
        with (box.run / file).open("ab") as handle:
            handle.write(data + b"\n")

    return spoil


def _node(file: str, make: Callable[[Sandbox, Path], Any]) -> Spoil:
    def spoil(box: Sandbox) -> None:
        (box.run / file).unlink(missing_ok=True)
        make(box, box.run / file)

    return spoil


def _pipe(box: Sandbox, path: Path) -> None:
    os.mkfifo(path)


def _folder(box: Sandbox, path: Path) -> None:
    path.mkdir()


def _link(box: Sandbox, path: Path) -> None:
    path.symlink_to(box.canary)


def _checkpoint(name: str, make: Callable[[Sandbox, Path], Any]) -> Spoil:
    return lambda box: make(box, box.run / "checkpoints" / name) and None


DOCUMENTS = {
    "empty": b"",
    "not-utf8": b"\xff\xfe\xff",
    "zeros": bytes(4096),
    "deep": DEEP,
    "digits": b"steps = " + DIGITS,
    "deep-toml": b"a = " + DEEP,
    "wrong-types": b"name = 1\nsteps = 'many'\nmodel = 5\n",
    "unknown-field": b"name = 'x'\nevil = 1\n",
    "unknown-kind": b"name = 'x'\n[model]\nkind = 'os.system'\n",
}

ROWS = {
    "empty-object": b"{}",
    "a-list": b"[1]",
    "a-number": b"5",
    "garbage": b"garbage",
    "not-utf8": b"\xff\xfe",
    "deep": DEEP,
    "digits": DIGITS,
    "step-a-text": b'{"step": "4", "attempt": 0}',
    "step-a-list": b'{"step": [4], "saved_at": 1.0, "metric": 1}',
    "step-null": b'{"step": null, "saved_at": null, "metric": null, "topology": null}',
    "step-of-400-digits": b'{"step": ' + b"9" * 400 + b', "saved_at": 1.0, "metric": 1}',
    "metric-of-400-digits": b'{"step": 4, "saved_at": 1.0, "metric": ' + b"9" * 400 + b"}",
    "metric-a-list": b'{"step": 4, "saved_at": 1.0, "metric": []}',
    "topology-a-number": b'{"topology": 5}',
    "topology-deep": b'{"topology": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
    "nan": b'{"step": NaN}',
    "utf16": '{"step": 3}'.encode("utf-16") + b"\ngarbage",
    "terminal-codes": b'{"topology": {"\\u001b[2J": "\\ud800"}, "step": 1}',
}


def _run(id: str, names: str, spoil: Spoil, resume: int = NEWEST) -> Entry:
    return Entry(f"run-{id}", "torch", "run", names, spoil, resume)


def _rows(file: str, *rows: str, resume: int = NEWEST) -> list[Entry]:
    """Return entries for lines added to a file of records."""
    pattern = file.replace(".", r"\.")
    return [_run(f"{file}-{row}-{resume}", pattern, _line(file, ROWS[row]), resume) for row in (rows or ROWS)]


NODES = ("spec.toml", "side", "latest.json", "steps.jsonl", "attempts.jsonl", "metrics.jsonl", "lock")

ENTRIES = [
    *(
        _run(f"spec.toml-{name}", "spec|name|field|kind", _text("spec.toml", data))
        for name, data in DOCUMENTS.items()
    ),
    *(_run(f"side-{name}", "side", _text("side", DOCUMENTS[name])) for name in ("empty", "not-utf8", "zeros")),
    *(_run(f"latest.json-{name}", "latest", _text("latest.json", DOCUMENTS[name])) for name in ("not-utf8", "deep")),
    *_rows("steps.jsonl", "garbage", "not-utf8", "deep", "digits", "utf16", "a-list"),
    *_rows(
        "steps.jsonl", "empty-object", "step-a-text", "step-a-list", "step-null", "step-of-400-digits", resume=OLDER
    ),
    *_rows("validations.jsonl", "empty-object", "step-a-text", "step-null", resume=OLDER),
    *_rows("attempts.jsonl", "empty-object", "topology-a-number", "topology-deep", "step-null", "terminal-codes"),
    *_rows("metrics.jsonl", *(row for row in ROWS if row.startswith(("step", "metric", "empty", "nan", "garbage")))),
    *(
        _run(f"{file}-{make.__name__.strip('_')}", file.replace(".", r"\."), _node(file, make))
        for file in NODES
        for make in (_pipe, _folder)
    ),
    *(_run(f"{file}-link", file.replace(".", r"\."), _node(file, _link)) for file in ("latest.json", "lock")),
    *(
        _run(f"checkpoints-{name}", "checkpoints", _checkpoint(path, make))
        for name, path, make in (
            ("pipe", "9", _pipe),
            ("link", "9", _link),
            ("newline", "a\nb", _folder),
            ("arabic-digits", "\u0669", _folder),
            ("not-utf8", os.fsdecode(b"\xff"), _folder),
            ("draft", ".draft-9-1", _folder),
            ("of-50-digits", "9" * 50, _folder),
        )
    ),
]
