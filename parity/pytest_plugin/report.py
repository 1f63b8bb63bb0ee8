"""The report of a session: records travel as text from the workers to the process that writes the pages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from parity.environment import describe_environment
from parity.report import check_markdown
from parity.report.html import check_page
from parity.results import CheckRecord, CheckResult, document, encode, read_result
from parity.storage import replace_file

__all__ = ["pack", "write_report"]


def pack(record: CheckRecord) -> str:
    """Return a record as text, for the process that writes the report."""
    return encode(document([record], {}))


def write_report(directory: Path, packed: Iterable[str], command: str, seconds: float) -> CheckResult:
    """Write `check.json`, `check.md` and `index.html`, as `parity check --report` does; return what is in them.

    Args:
        directory: Where they go; made if there is none.
        packed: Records, as `pack` returned them.
        command: The command line, for the report.
        seconds: What the session took.

    Raises:
        OSError: A file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    records: list[CheckRecord] = []
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        for text in packed:
            file = Path(scratch, "record.json")
            file.write_text(text, encoding="utf-8")
            found = read_result(file)
            assert isinstance(found, CheckResult)
            records += found.records
    environment = describe_environment() | {"command": command, "devices": {}, "seconds": round(seconds, 1)}
    replace_file(directory / "check.json", encode(document(records, environment)) + "\n")
    replace_file(directory / "check.md", check_markdown(records, environment))
    replace_file(directory / "index.html", check_page(records, environment))
    return CheckResult(records=tuple(records), environment=environment)
