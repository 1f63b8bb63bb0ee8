"""The JSON document of `parity check`; `check.schema.json` beside this file is its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parity.results.record import CheckRecord, overall
from parity.storage import plain

__all__ = ["SCHEMA", "document", "encode", "schema"]

SCHEMA = "parity.check/1"


def document(records: Sequence[CheckRecord], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of some records: `schema`, `verdict`, `environment`, `checks`.

    Args:
        records: The checks, in their order.
        environment: What the result depends on; plain JSON values.
    """
    return {
        "schema": SCHEMA,
        "verdict": overall(records),
        "environment": dict(environment),
        "checks": [plain(asdict(record)) for record in records],
    }


def encode(value: Mapping[str, Any]) -> str:
    """Return a document as valid JSON text, a list of plain values on one line.

    Non-finite floats must be the strings `inf`, `-inf` and `nan` already.
    """
    return _indented(value, "")


def _indented(value: Any, margin: str) -> str:
    inner = margin + "  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(str(key))}: {_indented(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inner + _indented(item, inner) for item in value) + f"\n{margin}]"
    return json.dumps(value, allow_nan=False)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    text = Path(__file__).with_name("check.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
