"""The HTML page: one file that loads nothing and runs nothing, with every verdict, chart and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from parity.report.words import clean, flatten

__all__ = ["BACK", "Html", "contents", "details", "environment", "page", "table", "text"]

Html = str
"""Markup that is ready: what came from a file is escaped in it."""

MOST_TEXT = 2_000
"""Characters of one text that are shown; a hostile note may be longer."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may do: use its own style, nothing else. No script, no image, no font, no request."""


BACK = '<p class="back"><a href="#top">back to the top</a></p>'
"""The link from the end of a section to the head of the page, which has the identifier `top`."""

FOLDED = 8
"""Items of a list, such as the flags of a CPU, above which it is folded."""

CELL = 120
"""Characters of a value of the environment above which it is folded."""


def page(title: str, body: Iterable[Html]) -> Html:
    """Return the whole page.

    Args:
        title: Its title, as text; it is escaped here.
        body: Markup of its parts, in order.
    """
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


def table(heads: Sequence[str], rows: Iterable[Sequence[Html]], *, kind: str = "", label: str = "") -> Html:
    """Return a table in a box that scrolls, which the keyboard reaches.

    Args:
        heads: Texts of its head.
        rows: Cells as markup, as many as heads.
        kind: Classes of the page's style, such as `figures`; the rows of one that is `stacked` become blocks on a
            narrow screen, where each cell is shown with its head.
        label: What a screen reader calls the box; by default the heads.
    """
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    stacked = "stacked" in kind.split()
    body = "\n".join("<tr>" + "".join(_cells(row, heads if stacked else ())) + "</tr>" for row in rows)
    inside = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    label = label or f"table: {', '.join(name for name in heads if name)}"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}">'
        f'<table class="{kind}">{inside}</table></div>'
    )


def _cells(row: Sequence[Html], heads: Sequence[str]) -> Iterable[Html]:
    """Return the cells of a row; those of a table that becomes blocks on a narrow screen carry their head."""
    if not heads:
        return (f"<td>{cell}</td>" for cell in row)
    return (
        f'<td data-head="{text(head)}">{cell}</td>' if head and cell else f"<td>{cell}</td>"
        for head, cell in zip(heads, row, strict=True)
    )


def details(summary: str, inside: Html) -> Html:
    """Return something that is opened on demand, without a script.

    Args:
        summary: What is always shown, as text; it is escaped here.
        inside: Markup of what is shown once it is open.

    Example:
        >>> details("1 < 2", "<p>more</p>")
        '<details><summary>1 &lt; 2</summary><p>more</p></details>'
    """
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def environment(values: Mapping[str, Any]) -> Html:
    """Return what a result depends on as a table of names and values."""
    rows = [(f"<code>{text(name)}</code>", _value(value)) for name, value in flatten(values)]
    shown = table(("what", "value"), rows, kind="facts")
    return f'<section id="environment"><h2>Environment</h2>{shown}{BACK}</section>'


def contents(links: Iterable[tuple[str, str]]) -> Html:
    """Return the table of contents.

    Args:
        links: Identifier of a place of the page, and what to call it.
    """
    items = "".join(f'<li><a href="#{place}">{text(name)}</a></li>' for place, name in links)
    return f'<nav aria-label="contents"><details open><summary>Contents</summary><ol>{items}</ol></details></nav>'


def _value(value: object) -> Html:
    """Return a value of the environment; a long one, such as the flags of a CPU, is folded; its length is shown."""
    if isinstance(value, list | tuple) and len(value) > FOLDED:
        return details(f"{len(value)} items", text(" ".join(map(str, value))))
    shown = text(value)
    return shown if len(shown) <= CELL else details(f"{len(shown)} characters", shown)
