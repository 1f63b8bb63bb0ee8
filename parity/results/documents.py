"""The JSON document of a check; `check.schema.json` beside this file is its schema."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parity.environment import versions
from parity.results.record import CheckRecord, overall
from parity.storage import plain

__all__ = ["SCHEMA", "describe_environment", "document", "encode", "schema"]

SCHEMA = "parity.check/1"


def document(records: Sequence[CheckRecord], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of some records: `schema`, `verdict`, `environment`, `checks`."""
    return {
        "schema": SCHEMA,
        "verdict": overall(records),
        "environment": dict(environment),
        "checks": [plain(asdict(record)) for record in records],
    }


def describe_environment() -> dict[str, Any]:
    """Return versions, machine and commit: what a result depends on beside its spec."""
    commit = _git("rev-parse", "HEAD") or None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": dict(versions()),
        "commit": commit,
        "dirty": bool(commit and _git("status", "--porcelain", "--untracked-files=no")),
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


def _git(*words: str) -> str:
    """Return what git says of the source tree this package lies in; nothing for an installed one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        found = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()
