"""The pages of the project and the tables in them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = tuple(str(path.relative_to(ROOT)) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]))


def read(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def words(text: str) -> str:
    """Return a text on one line, so that what is looked for may be wrapped."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Table:
    """A table of a page."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        return [row[self.head.index(name)] for row in self.rows]


def tables(text: str) -> list[Table]:
    """Return the tables of a page, those inside of code left out."""
    found, code, lines = [], False, text.splitlines()
    for number, line in enumerate(lines):
        code ^= line.lstrip().startswith("```")
        if code or not number or not re.fullmatch(r"\s*\|?(\s*:?-+:?\s*\|)+(\s*:?-+:?\s*)?", line):
            continue
        rows = []
        for row in lines[number + 1 :]:
            if "|" not in row:
                break
            rows.append(_cells(row))
        found.append(Table(_cells(lines[number - 1]), tuple(rows)))
    return found


def table(page: str, *head: str) -> Table:
    """Return the table of a page whose first columns have these names."""
    (found,) = (one for one in tables(read(page)) if one.head[: len(head)] == head)
    return found


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", inner))


def expect_failure(test: Callable[[], None], page: str, old: str, new: str, patch: pytest.MonkeyPatch) -> None:
    """Check that a test fails where a page says something else."""
    as_it_is, text = read, read(page)
    assert text.count(old) == 1, old
    patch.setattr("tests.docs.pages.read", lambda name: text.replace(old, new) if name == page else as_it_is(name))
    with pytest.raises((AssertionError, SystemExit), match=r"assert|^2$"):
        test()
