"""docs/results.md is as `make results` wrote it, and the README has its figures."""

import re

import pytest

from benchmarks.gpu import TITLE as GPU
from benchmarks.results import BEGIN, CHART, END, chart_fits, headlines, is_as_written, readme_block
from parity.report import NOT_MEASURED
from tests.docs.pages import ROOT, read


def block_of(readme: str) -> str:
    """Return what stands between the markers of the README, the markers included."""
    return readme[readme.index(BEGIN) : readme.index(END) + len(END)]


def test_the_readme_has_the_figures_of_the_page():
    """Otherwise: make results"""
    assert block_of(read("README.md")) == readme_block(read("docs/results.md"))


def test_each_headline_has_its_figures():
    assert NOT_MEASURED not in readme_block(read("docs/results.md"))
    assert len(headlines("")) == 4
    assert all(NOT_MEASURED in line for line in headlines(""))


def test_the_page_is_as_it_was_written():
    """Otherwise: make results"""
    assert is_as_written(read("docs/results.md"))


@pytest.mark.parametrize(("name", "title"), [("results-gpu", GPU), ("results-gpu-h200", f"{GPU}: H200")])
def test_the_page_of_a_gpu_is_as_it_was_written(name, title):
    """Otherwise: make bench-gpu"""
    page = read(f"docs/{name}.md")
    assert is_as_written(page)
    assert is_as_written(page.replace("holds", "broken", 1)) is False
    assert page.startswith(f"# {title}\n")
    assert re.search(r"^\| devices.torch.platform \| (?!cpu)", page, re.MULTILINE)


def test_the_chart_is_the_one_of_the_page():
    """Otherwise: make results"""
    chart = ROOT / "docs" / CHART
    assert chart_fits(read("docs/results.md"), chart.read_text(encoding="utf-8") if chart.exists() else None)


def test_any_figure_edited_in_the_readme_is_noticed():
    block, page = block_of(read("README.md")), read("docs/results.md")
    figures = list(re.finditer(r"\d+", block))
    assert len(figures) > 20
    for found in figures:
        edited = f"{block[: found.start()]}{int(found[0]) + 1}{block[found.end() :]}"
        assert edited != readme_block(page), found


def test_any_figure_edited_on_the_page_is_noticed():
    page = read("docs/results.md")
    figures = list(re.finditer(r"\d+", page))
    for found in figures[::97]:  # a page is 60 kB
        assert not is_as_written(f"{page[: found.start()]}{int(found[0]) + 1}{page[found.end() :]}"), found


def test_a_page_without_its_digest_is_noticed():
    page = read("docs/results.md")
    assert not is_as_written(page[: page.rindex("<!--")])
    assert not is_as_written(page + "\none line more\n")
