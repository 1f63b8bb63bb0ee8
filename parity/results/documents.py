"""The JSON document of `parity check`, and reading the JSON of a result; `check.schema.json` here is its schema."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parity.errors import ResultError
from parity.results.record import CheckRecord, overall
from parity.storage import parse_json, plain, read_bytes

__all__ = ["SCHEMA", "document", "encode", "read_document", "schema"]

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


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of results.

    Raises:
        ResultError: The file is empty, truncated, too large, no regular file, or holds anything but one JSON object.
    """
    data = read_bytes(path, failure=ResultError).removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise ResultError(f"{path} is empty: the run that was to write it did not finish; run it again")
    try:
        return parse_json(data, path, ResultError)
    except ResultError as error:
        hint = "a truncated file comes from a run that broke off: run it again"
        raise ResultError(f"{error}; expected the JSON of a result ({hint})") from error
