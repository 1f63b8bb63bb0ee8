"""The HTML page: one file that loads nothing and runs nothing, with every verdict, chart and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from parity.report.words import clean, flatten

__all__ = ["Html", "details", "environment", "page", "table", "text"]

Html = str
"""Markup that is ready: what came from a file is escaped in it."""

MOST_TEXT = 2_000
"""Characters of one text that are shown; a hostile note may be longer."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may do: use its own style, nothing else. No script, no image, no font, no request."""


def page(title: str, body: Iterable[Html]) -> Html:
    """Return the whole page."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def text(value: object) -> Html:
    """Return text from anywhere as markup: escaped, on one line, cut where it is endless."""
    whole = clean(value)
    return escape(whole if len(whole) <= MOST_TEXT else whole[:MOST_TEXT] + " ...")


def table(heads: Sequence[str], rows: Iterable[Sequence[Html]], *, kind: str = "") -> Html:
    """Return a table.

    Args:
        heads: Texts of its head.
        rows: Cells as markup, as many as heads.
        kind: Classes of the page's style, such as `figures`.
    """
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    inside = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="scroll"><table class="{kind}">{inside}</table></div>'


def details(summary: str, inside: Html) -> Html:
    """Return something that is opened on demand, without a script."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def environment(values: Mapping[str, Any]) -> Html:
    """Return what a result depends on as a table of names and values."""
    rows = [(f"<code>{text(name)}</code>", text(value)) for name, value in flatten(values)]
    return f'<section id="environment"><h2>Environment</h2>{table(("what", "value"), rows, kind="facts")}</section>'
