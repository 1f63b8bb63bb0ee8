"""Output for GitHub Actions: the summary of a step, and an annotation for each check that does not hold."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from parity.report.words import clean, findings, meaning, sides
from parity.results import CheckRecord

__all__ = ["annotate", "append_summary", "quoted"]

LEVELS = {"broken": "error", "crashed": "error", "inconclusive": "warning", "empty": "warning"}

MOST_TEXT = 4_000
"""Characters of one annotation; the service cuts at 64 KiB."""


MOST_SUMMARY = 1_000_000
"""Bytes of a summary; the service refuses a longer file than 1 MiB."""


def append_summary(markdown: str) -> None:
    """Append Markdown to the file that GITHUB_STEP_SUMMARY names, where it is set.

    A summary that cannot be written is a warning on stderr: it must not change the verdict.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    if len(markdown.encode()) > MOST_SUMMARY:
        markdown = markdown.encode()[:MOST_SUMMARY].decode(errors="ignore") + "\n\nThe rest was cut: it is too long."
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")
    except OSError as error:
        print(f"parity: warning: no summary was written: {error}", file=sys.stderr)


def annotate(records: Sequence[CheckRecord], file: IO[str]) -> None:
    """Print a workflow command for each check that does not hold, in GitHub Actions only.

    Args:
        records: The checks.
        file: Where the commands are printed; GitHub reads stdout and stderr.
    """
    if not _in_actions():
        return
    for record in records:
        level = LEVELS.get(record.verdict)
        if level is not None:
            title = f"{record.name} {record.spec} {record.precision} ({sides(record)}): {record.verdict}"
            message = "\n".join(findings(record)) or meaning(record)
            print(f"::{level} title={_property(title)}::{_data(message[:MOST_TEXT])}", file=file)


@contextmanager
def quoted(file: IO[str]) -> Iterator[None]:
    """Print the output of the block as plain text: in GitHub Actions, no line of it is taken for a command.

    Source: the workflow command `stop-commands`, whose token is drawn anew each time.
    """
    if not _in_actions():
        yield
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=file)
    try:
        yield
    finally:
        print(f"::{token}::", file=file)


def _in_actions() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(clean(text)).replace(":", "%3A").replace(",", "%2C")
