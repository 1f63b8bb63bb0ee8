"""What was measured of the five models, as a file and as tables of a page, with the bars that it is held to.

Needs neither framework nor transformers: the page is compared with the file wherever the tests run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["BARS", "RECORD", "note_carried", "note_variant", "read_record", "tables", "write_page"]

RECORD = Path(__file__).with_name("results.json")
MARKS = ("<!-- five:begin -->", "<!-- five:end -->")

BARS: Mapping[str, float] = {"curve": 1e-10, "state": 1e-10, "back": 1e-10, "floor": 1e-11, "share": 0.95}
"""Largest relative differences, and the least part of the rows that are sure and right."""

NAMES = {"gpt2": "GPT-2", "llama": "Llama", "bert": "BERT", "vit": "ViT", "t5": "T5", "voice": "Resemblyzer's LSTM"}


def read_record(path: Path) -> dict[str, Any]:
    """Return what was measured so far."""
    return json.loads(path.read_text()) if path.exists() else {"carried": {}, "variants": {}}


def note_carried(found: Any) -> str:
    """Keep a model that was carried over, and return it as a line."""
    record = read_record(RECORD)
    record["carried"][found.model] = {**dataclasses.asdict(found), "versions": _versions()}
    _write(record)
    return f"{found.model}: {found.sure} of {found.rows} rows sure, curve {found.curve:.1e}, {found.seconds:.0f} s"


def note_variant(variant: str, found: Any) -> str:
    """Keep the count of a variant's rows, and return it as a line."""
    record = read_record(RECORD)
    record["variants"][variant] = {**dataclasses.asdict(found), "versions": _versions()}
    _write(record)
    return (
        f"{variant}: {found.right} of {found.rows} rows sure and right, {found.wrong} sure and wrong, {found.verdict}"
    )


def _write(record: Mapping[str, Any]) -> None:
    draft = RECORD.with_suffix(".draft")
    draft.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    os.replace(draft, RECORD)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name).partition("+")[0] for name in ("transformers", "torch", "jax", "flax", "optax")}


def tables(record: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the tables of the page, and the bars that are missed."""
    carried, variants = record["carried"], record["variants"]
    missed = [f"{name}: {word} is {one[word]:.1e}, the bar {BARS[word]:.0e}"
              for name, one in carried.items() for word in ("curve", "state", "back", "floor")
              if one[word] is not None and not one[word] < BARS[word]]  # fmt: skip
    missed += [f"{name}: the proof is {one['proof']}" for name, one in carried.items() if one["proof"] != "holds"]
    missed += [f"{name}: {one['right']} of {one['rows']} rows sure and right, {one['wrong']} sure and wrong"
               for name, one in variants.items()
               if one["wrong"] or one["right"] < BARS["share"] * one["rows"]]  # fmt: skip
    order = [*(name for name in NAMES if name in carried), *(name for name in carried if name not in NAMES)]
    rows = [[_shown(name), f"{one['sure']} of {one['rows']}", f"{one['proven']:.1e}", f"{one['curve']:.1e}",
             f"{one['state']:.1e}", f"{one['floor']:.1e}", "" if one["back"] is None else f"{one['back']:.1e}",
             f"{one['seconds_map']:.0f}", f"{one['seconds']:.0f}"]
            for name, one in ((name, carried[name]) for name in order)]  # fmt: skip
    head = ["model", "rows sure", "proof", "50 steps", "state", "floor", "back", "map, s", "all, s"]
    text = _table(head, rows)
    rows = [[_shown(name), str(one["rows"]), str(one["right"]), str(one["wrong"]), one["verdict"],
             f"{one['seconds']:.0f}"] for name, one in sorted(variants.items(), key=_place)]  # fmt: skip
    text += "\n\n" + _table(["variant", "rows", "sure and right", "sure and wrong", "verdict", "s"], rows)
    casts: dict[str, list[str]] = {}
    for name in order:
        for one in carried[name]["islands"]:
            casts.setdefault(one, []).append(_shown(name))
    rows = [[f"`{cast}`", ", ".join(names)] for cast, names in casts.items()]
    return text + "\n\n" + _table(
        ["cast to float32 that was answered in float64", "in the training of"], rows
    ), missed


def _place(item: tuple[str, Any]) -> tuple[int, str]:
    name = item[0].partition(",")[0]
    return list(NAMES).index(name), item[0]


def _shown(name: str) -> str:
    first, comma, rest = name.partition(",")
    return f"{NAMES[first]}{comma}{rest}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)] if len(head) > 2 else ["---", "---"], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_page(path: Path) -> None:
    """Put the tables between their marks.

    Raises:
        ValueError: The page has no such marks.
    """
    text = path.read_text()
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise ValueError(f"{path} has no {MARKS[0]} and {MARKS[1]}")
    path.write_text(f"{before}{begin}\n{tables(read_record(RECORD))[0]}\n{end}{after}")
