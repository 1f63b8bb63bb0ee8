"""docs/results.md is as `make results` wrote it, and the README shows the same checks."""

import re

from benchmarks.results import BEGIN, CHART, END, chart_fits, is_as_written
from tests.docs.pages import ROOT, Table, read, tables


def checks_of(page: str) -> Table:
    """Return the table of checks; that of steps per second may come before it."""
    return next(one for one in tables(page) if one.head[0] == "check")


def differences(readme: str, page: str) -> list[str]:
    """Return the rows of the README's table that are not those of the page, and a summary that does not fit."""
    ours, *others = sorted(
        tables(readme[readme.index(BEGIN) : readme.index(END)]), key=lambda one: one.head[0] != "check"
    )
    theirs = checks_of(page)
    found = [f"columns {ours.head}"] if ours.head != theirs.head else []
    found += [" | ".join(a) for a, b in zip(ours.rows, theirs.rows, strict=False) if a != b]
    if len(ours.rows) != len(theirs.rows):
        found.append(f"{len(ours.rows)} rows for {len(theirs.rows)}")
    counted = sum(int(n) for n in re.findall(r"(\d+) [a-z]+", re.search(r"^\S+ [a-z]+: (.*) \(", readme, re.M)[1]))
    found += [f"table {one.head}" for one in others if one not in tables(page)]
    return found + ([f"the summary counts {counted}"] if counted != len(ours.rows) else [])


def test_the_readme_shows_the_checks_of_the_page():
    """Otherwise: make results"""
    assert differences(read("README.md"), read("docs/results.md")) == []


def test_the_page_is_as_it_was_written():
    """Otherwise: make results"""
    assert is_as_written(read("docs/results.md"))


def test_the_chart_is_the_one_of_the_page():
    """Otherwise: make results"""
    chart = ROOT / "docs" / CHART
    assert chart_fits(read("docs/results.md"), chart.read_text(encoding="utf-8") if chart.exists() else None)


def test_a_table_of_the_readme_that_is_not_on_the_page_is_noticed():
    table = "\n| steps per second | mlp-digits |\n| --- | --: |\n| JAX scan | 1 |\n\n"
    readme, page = read("README.md"), read("docs/results.md")
    assert len(differences(readme.replace(END, table + END), page)) == 1
    assert differences(readme.replace(END, table + END), page + table) == []


def test_any_figure_edited_in_the_readme_is_noticed():
    readme, page = read("README.md"), read("docs/results.md")
    rows = list(re.finditer(r"^\| [a-z]+ \|.* [\d.]+ \|$", readme[: readme.index(END)], re.MULTILINE))
    assert len(rows) == len(checks_of(page).rows)
    for row in rows:
        for found in re.finditer(r"\d+", row[0]):
            edited = f"{row[0][: found.start()]}{int(found[0]) + 1}{row[0][found.end() :]}"
            assert len(differences(readme.replace(row[0], edited), page)) == 1, edited


def test_any_figure_edited_on_the_page_is_noticed():
    page = read("docs/results.md")
    figures = list(re.finditer(r"\d+", page))
    for found in figures[::97]:  # a page is 60 kB
        assert not is_as_written(f"{page[: found.start()]}{int(found[0]) + 1}{page[found.end() :]}"), found


def test_a_page_without_its_digest_is_noticed():
    page = read("docs/results.md")
    assert not is_as_written(page[: page.rindex("<!--")])
    assert not is_as_written(page + "\none line more\n")
